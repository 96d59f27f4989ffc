"""Settings of the property tests: this machine may be busy, so no example has a time limit."""

from hypothesis import HealthCheck, settings

settings.register_profile("apiserver", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("apiserver")
