"""One module per figure of the paper, named by what it shows; `python -m analysis.figures` draws them."""
