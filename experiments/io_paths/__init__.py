"""The ways to the storage measured by themselves, by fio, without KV (paper figure 5).

Runs of the engine are measured in `experiments.engine_run`.
"""
