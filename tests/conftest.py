"""Settings shared by all tests."""

import os

# Several test workers share the machine; a full thread pool in each would only fight over it.
os.environ.setdefault("AMDJAX_NUM_THREADS", "2")

from hypothesis import HealthCheck, settings

_slow_ok = [HealthCheck.too_slow, HealthCheck.data_too_large]

# The first call of a shape compiles, so wall-clock deadlines would be noise.
settings.register_profile("dev", deadline=None, max_examples=25, suppress_health_check=_slow_ok)
settings.register_profile(
    "ci", deadline=None, max_examples=25, derandomize=True, suppress_health_check=_slow_ok
)
settings.register_profile(
    "thorough", deadline=None, max_examples=500, suppress_health_check=_slow_ok
)
_default = "ci" if os.environ.get("CI") else "dev"
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", _default))
