"""One page for everything: verdicts, claims, figures, tables, machines, and the runs behind each. Needs no network."""
