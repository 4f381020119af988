"""Points, their identity, and the sweeps that Hydra composes from conf/.

A point is data. Measuring one is not done here.
"""
