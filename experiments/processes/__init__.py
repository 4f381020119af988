"""Other programs: started inside their cgroup, spoken to, signalled, never outliving the harness.

No module here knows what the programs do.
"""
