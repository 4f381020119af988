"""Comparisons with the tools that the engine must match: fio for the direct path, FlexLLMGen for the Baseline."""
