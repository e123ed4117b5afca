import numpy as np

from amdjax import nn, random


def test_delta_orthogonal_of_fewer_inputs_than_outputs():
    kernel = np.asarray(nn.initializers.delta_orthogonal()(random.key(0), (3, 3, 4)))
    recorded = [0.8337946, -0.04039752, -0.25450924, -0.4882415, 0.5419113, 0.06573482]
    np.testing.assert_allclose(kernel[1].ravel()[:6], recorded, rtol=1e-5)
    np.testing.assert_allclose(kernel[1] @ kernel[1].T, np.eye(3), atol=1e-6)
    assert not kernel[[0, 2]].any()
