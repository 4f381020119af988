"""What the harness sets on a machine for one run, and undoes: cgroup, caches, dirty pages, readahead, scratch folder.

Each change is in the journal before it is made. No module here knows what a run measures.
"""
