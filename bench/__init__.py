"""The engine beside the tools it must not lose to: fio for the direct path, FlexLLMGen for the Baseline."""
