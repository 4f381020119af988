"""The testbed `guest`: a virtual machine with emulated NVMe SSDs, and the harness's job inside it.

Everything that knows QEMU, virtme-ng or the guest's kernel lives here.
"""
