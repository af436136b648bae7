"""The fixtures of tests/ptx that are computed from the manual's rules, one module a family."""
