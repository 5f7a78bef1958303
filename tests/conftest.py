"""Settings that hold for all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

collect_ignore = ["data"]  # programs that tests read, whatever their files are called

# A busy machine is no reason to fail: what takes long is measured in benchmarks, not here.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
