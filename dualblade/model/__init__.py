"""What uses a store: the transformers cache, model runs, and the replay that makes the same calls without a model.

All that knows about layers of a model, sequences and prompts lives here, and nothing about devices.
"""
