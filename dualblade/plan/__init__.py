"""What goes where: the budget, the residency plan and the extents (paper, Algorithm 1 and "LBA bind").

Arithmetic, and the numbers of the kernel that it starts from. Nothing is opened or written here.
"""
