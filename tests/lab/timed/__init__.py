"""The simulator's time-driven run, done by a scheduler: for test_simulated_is_run."""
