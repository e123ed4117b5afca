"""Bad calls of `experimental`, of SciPy's classes, and of rules that users write.

A program takes what a rule of the user returns, so that it can be wrong.
"""

from tests.support.jax_calls.examples import examples

PREFIX = ""
SPOIL_EVERY = 1
MODES = "eager"
FAMILIES = examples("""
    programs.custom_jvp(V, V, V)
    programs.custom_vjp(V, V, V, (V,))
    programs.custom_vmap(V, V, True)
    programs.linear_solve(V, V)
    programs.root(U, U)
    programs.checked(True, 'of {x}', V)
    programs.sparse(X, S, {'dict': {'nse': 6}})
    programs.interpolator(([1.0, 2.0, 3.0],), UV, [[1.5]], {'dict': {'method': 'linear'}})
    programs.kde(UV, 'pdf', (UV,), {'dict': {'bw_method': 'scott'}})
    experimental.ode.odeint(pair, U, UV, rtol=1e-4, atol=1e-4, mxstep=9, hmax=1.0)
    experimental.jet.jet(sin, (V,), ((V,),))
    experimental.checkify.check(True, 'message')
    experimental.sparse.bcoo_fromdense(X, nse=6, n_batch=0, n_dense=0, index_dtype='int32')
    experimental.sparse.empty((2, 3), dtype='float32', index_dtype='int32', sparse_format='bcoo')
    experimental.sparse.eye(3, 3, k=0, dtype='float32', index_dtype='int32')
    experimental.sparse.random_bcoo(K, (2, 3), dtype='float32', nse=0.5, n_batch=0, n_dense=0)
    random.wrap_key_data(WORDS, impl='threefry2x32')
    random.key_data(K)
    random.clone(K)
    tree_util.tree_map(add, {'dict': {'k': 1}}, {'dict': {'k': 2}})
    tree_util.build_tree(TWO, [1, 2])
    tree_util.treedef_tuple([TWO, TWO])
    tree_util.tree_unflatten(TWO, (1, 2))
""")
