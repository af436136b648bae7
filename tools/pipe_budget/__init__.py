"""The parts of tools/pipe_budget.py."""
