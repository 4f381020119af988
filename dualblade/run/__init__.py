"""One run as the harness starts it: its result, the writes of a dry run, and the server that forks runs.

Nothing in the engine proper (store, paths, pipeline, model) imports this package.
"""
