"""From results to figures: every number drawn comes out of a file under results/."""
