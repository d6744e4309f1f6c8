"""Whole experiments, declared as data: what to run where, how often, in what order."""
