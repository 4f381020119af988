"""Facts from the kernel, and its calls: cgroups, mounts, page cache, NVMe namespaces, ownership of blocks.

Nothing here knows about KV caches, plans or configurations; nothing imports numpy or torch.
"""
