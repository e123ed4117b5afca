"""Bad calls of the functions of `jax.scipy`: an argument of each does not belong there."""

from tests.support.jax_calls.examples import examples

PREFIX = "scipy"
SPOIL_EVERY = 1
MODES = "eager"

OF_ONE = """dawsn digamma entr erf erfc erfcx erfinv exp1 expi expit fresnel gamma gammaln gammasgn
    i0 i0e i1 i1e loggamma logit ndtr ndtri sici spence wofz"""
OF_TWO = """beta betaln boxcox boxcox1p comb expn gammainc gammaincc kl_div owens_t poch polygamma
    rel_entr xlog1py xlogy zeta"""
CONTINUOUS = {
    "cauchy": "cdf isf logcdf logpdf logsf pdf ppf sf",
    "expon": "cdf logcdf logpdf logsf pdf ppf sf",
    "gumbel_l": "cdf logcdf logpdf logsf pdf ppf sf",
    "gumbel_r": "cdf logcdf logpdf logsf pdf ppf sf",
    "laplace": "cdf logpdf pdf",
    "logistic": "cdf isf logpdf pdf ppf sf",
    "norm": "cdf isf logcdf logpdf logsf pdf ppf sf",
    "uniform": "cdf logpdf pdf ppf",
}
SHAPED = {
    "chi2": "cdf logcdf logpdf logsf pdf sf",
    "gamma": "cdf logcdf logpdf logsf pdf sf",
    "pareto": "cdf logcdf logpdf logsf pdf ppf sf",
    "t": "logpdf pdf",
}


def _each(table: dict[str, str], arguments: str) -> str:
    return "\n".join(f"stats.{d}.{f}{arguments}" for d in table for f in table[d].split())


FAMILIES = examples(
    "\n".join(f"special.{name}(U)" for name in OF_ONE.split())
    + "\n"
    + "\n".join(f"special.{name}(U, 2.0)" for name in OF_TWO.split())
    + "\n"
    + _each(CONTINUOUS, "(UV, loc=0.5, scale=2.0)")
    + "\n"
    + _each(SHAPED, "(UV, 2.0, loc=0.5, scale=2.0)")
    + """
    special.bernoulli(3)
    special.bessel_jn(U, v=2, n_iter=10)
    special.betainc(U, 2.0, U)
    special.factorial(3, exact=False)
    special.hyp1f1(U, 2.0, U)
    special.hyp2f1(U, 2.0, 1.5, U)
    special.log_ndtr(U, series_order=3)
    special.log_softmax(X, axis=0)
    special.logsumexp(X, axis=0, b=X, keepdims=True, return_sign=True)
    special.multigammaln(3.5, 2)
    special.softmax(X, axis=0)
    special.sph_harm_y([1], [0], [0.5], [0.5], n_max=2)
    linalg.block_diag(X, V)
    linalg.cho_factor(S, lower=True)
    linalg.cho_solve((S, True), UV)
    linalg.cholesky(S, lower=True)
    linalg.circulant(V)
    linalg.companion(UV)
    linalg.convolution_matrix(V, 3, mode='full')
    linalg.det(S)
    linalg.dft(3, scale='n')
    linalg.eigh(S, lower=True, eigvals_only=True)
    linalg.eigh_tridiagonal(UV, [1.0, 2.0], eigvals_only=True, select='i', select_range=(0, 1))
    linalg.expm(S, upper_triangular=False, max_squarings=16)
    linalg.expm_frechet(S, S, method=None, compute_expm=True)
    linalg.fiedler(V)
    linalg.fiedler_companion(UV)
    linalg.funm(S, sin)
    linalg.hadamard(4)
    linalg.hankel(V, UV)
    linalg.helmert(3, full=True)
    linalg.hilbert(3)
    linalg.inv(S)
    linalg.invhilbert(3)
    linalg.invpascal(3, kind='symmetric')
    linalg.leslie(UV, [0.5, 0.5])
    linalg.lu(S, permute_l=True)
    linalg.lu_factor(S)
    linalg.lu_solve((S, [0, 1, 2]), UV, trans=0)
    linalg.pascal(3, kind='lower')
    linalg.polar(S, side='right', method='qdwh')
    linalg.qr(S, mode='full', pivoting=False)
    linalg.qr_multiply(S, UV, mode='right')
    linalg.rsf2csf(S, S)
    linalg.schur(S, output='real')
    linalg.solve(S, UV, lower=False, assume_a='gen')
    linalg.solve_sylvester(S, S, S)
    linalg.solve_triangular(S, UV, trans=0, lower=True, unit_diagonal=False)
    linalg.sqrtm(S)
    linalg.svd(S, full_matrices=True, compute_uv=False)
    linalg.toeplitz(V, UV)
    signal.convolve(V, UV, mode='full', method='auto')
    signal.convolve2d(X, S, mode='same', boundary='fill', fillvalue=0)
    signal.correlate(V, UV, mode='full', method='auto')
    signal.correlate2d(X, S, mode='valid', boundary='fill', fillvalue=0)
    signal.csd(V, V, fs=1.0, window='hann', nperseg=4, noverlap=2, nfft=4, axis=-1)
    signal.detrend(X, axis=-1, type='linear', bp=0)
    signal.fftconvolve(V, UV, mode='same', axes=0)
    signal.istft(S, fs=1.0, window='hann', nperseg=4, noverlap=2, time_axis=-1, freq_axis=-2)
    signal.stft(V, fs=1.0, window='hann', nperseg=4, noverlap=2, nfft=4, axis=-1, padded=True)
    signal.welch(V, fs=1.0, window='hann', nperseg=4, noverlap=2, detrend='constant')
    ndimage.map_coordinates(X, [UV, UV], 1, mode='constant', cval=0.0)
    fft.dct(V, type=2, n=4, axis=-1, norm='ortho')
    fft.dctn(X, type=2, s=(2, 3), axes=(0, 1), norm='ortho')
    fft.idct(V, type=2, n=4, axis=-1, norm='ortho')
    fft.idctn(X, type=2, s=(2, 3), axes=(0, 1), norm='ortho')
    integrate.trapezoid(V, x=V, dx=1.0, axis=-1)
    cluster.vq.vq(X, S)
    sparse.linalg.cg(S, UV, x0=UV, tol=1e-5, maxiter=2)
    sparse.linalg.gmres(S, UV, tol=1e-5, restart=2, maxiter=2, solve_method='batched')
    sparse.linalg.bicgstab(S, UV, tol=1e-5, atol=0.0, maxiter=2)
    optimize.minimize(sum, UV, method='BFGS', tol=1e-3)
    stats.bernoulli.cdf(N, U)
    stats.bernoulli.logpmf(N, U, loc=0)
    stats.bernoulli.pmf(N, U, loc=0)
    stats.bernoulli.ppf(UV, U)
    stats.beta.cdf(UV, 1.5, 2.0, loc=0.0, scale=2.0)
    stats.beta.logcdf(UV, 1.5, 2.0, loc=0.0, scale=2.0)
    stats.beta.logpdf(UV, 1.5, 2.0, loc=0.0, scale=2.0)
    stats.beta.logsf(UV, 1.5, 2.0, loc=0.0, scale=2.0)
    stats.beta.pdf(UV, 1.5, 2.0, loc=0.0, scale=2.0)
    stats.beta.sf(UV, 1.5, 2.0, loc=0.0, scale=2.0)
    stats.betabinom.logpmf(N, 5, 1.5, 2.0, loc=0)
    stats.betabinom.pmf(N, 5, 1.5, 2.0, loc=0)
    stats.binom.logpmf(N, 5, U, loc=0)
    stats.binom.pmf(N, 5, U, loc=0)
    stats.dirichlet.logpdf(UV, UV)
    stats.dirichlet.pdf(UV, UV)
    stats.gennorm.cdf(UV, 2.0)
    stats.gennorm.logpdf(UV, 2.0)
    stats.gennorm.pdf(UV, 2.0)
    stats.geom.logpmf(N, U, loc=0)
    stats.geom.pmf(N, U, loc=0)
    stats.mode(I, axis=0, nan_policy='propagate', keepdims=True)
    stats.multinomial.logpmf(I, 5, UV)
    stats.multinomial.pmf(I, 5, UV)
    stats.multivariate_normal.logpdf(UV, UV, S)
    stats.multivariate_normal.pdf(UV, UV, S)
    stats.nbinom.logpmf(N, 5, U, loc=0)
    stats.nbinom.pmf(N, 5, U, loc=0)
    stats.poisson.cdf(N, 2.0, loc=0)
    stats.poisson.entropy(2.0, loc=0)
    stats.poisson.logpmf(N, 2.0, loc=0)
    stats.poisson.pmf(N, 2.0, loc=0)
    stats.rankdata(X, method='average', axis=0, nan_policy='propagate')
    stats.sem(X, axis=0, ddof=1, nan_policy='propagate', keepdims=True)
    stats.truncnorm.cdf(UV, -1.0, 2.0, loc=0.0, scale=2.0)
    stats.truncnorm.logcdf(UV, -1.0, 2.0, loc=0.0, scale=2.0)
    stats.truncnorm.logpdf(UV, -1.0, 2.0, loc=0.0, scale=2.0)
    stats.truncnorm.logsf(UV, -1.0, 2.0, loc=0.0, scale=2.0)
    stats.truncnorm.pdf(UV, -1.0, 2.0, loc=0.0, scale=2.0)
    stats.truncnorm.sf(UV, -1.0, 2.0, loc=0.0, scale=2.0)
    stats.vonmises.logpdf(UV, 2.0)
    stats.vonmises.pdf(UV, 2.0)
    stats.wrapcauchy.logpdf(UV, 0.5)
    stats.wrapcauchy.pdf(UV, 0.5)
    """
)
