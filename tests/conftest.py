"""What holds for every test."""

from hypothesis import HealthCheck, settings

# No test asserts a time. The first draw of text on a fresh checkout alone takes a second: Hypothesis makes its table of
# Unicode's categories then.
settings.register_profile("purser", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("purser")
