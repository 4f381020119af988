"""What the notebooks show: one run, or one quantity over runs, seen closer than a figure of the paper does."""
