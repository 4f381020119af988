/* The direct path's transfer loop. A transfer moves one run of a tensor. Transfers queue on a ring, which keeps up to
   `queue_depth` commands in flight. The first commands of the next transfer follow the last ones of the current
   transfer, so the device's queue never drains between them. Only one thread at a time may use a ring. */

struct db_clock;
struct db_ring;
struct db_transfer;

/* The target of a ring's commands. `nsid` is 0 for ordinary reads and writes of a file or block device. Else `fd` is an
   NVMe character device and `nsid` its namespace, and commands are native ones (io_uring_cmd). */
struct db_device {
    int fd;
    uint32_t nsid;
    uint32_t block_bytes;   /* a power of two */
    uint64_t first_byte;    /* nothing outside [first_byte, end_byte) is ever sent */
    uint64_t end_byte;
    int iopoll;             /* poll for completions of native commands instead of waiting for interrupts */
};

/* A read with a mirror copies its bytes [from, from + bytes) to `target`, part by part as its commands complete. Its
   buffer then holds only the commands in flight, in `staging_bytes` that all mirrored transfers of the ring reuse. They
   stay in the CPU's cache, while a whole tensor would have to be read from memory again. */
struct db_mirror {
    char *target;
    uint64_t from;
    uint64_t bytes;
    uint64_t staging_bytes; /* at least `queue_depth` blocks */
};

struct db_result {
    uint64_t moved;         /* bytes the device has moved */
    uint64_t commands;      /* commands issued, also those for the rest of a short one */
    uint64_t depth_sum;     /* for each command, the ring's commands in flight at its issue, itself included */
    uint64_t failed_byte;   /* device offset of the first failed or unanswered command */
    uint32_t resumed;       /* commands issued again after a short, interrupted or deferred completion */
    uint32_t in_flight;     /* commands the kernel still owns after a timeout: never reuse their memory */
};

/* Open a ring. `clock` may be NULL; rings with the same clock share its device, and it must outlive them. Returns 0 or
   -errno. */
int db_ring_open(struct db_ring **out, const struct db_device *device, unsigned queue_depth, struct db_clock *clock);

/* Let the kernel pin `bytes` of memory at `base` once instead of at every native command. This helps commands that lie
   within one piece. Each stride of `stride_bytes` is divided into pieces of `piece_bytes`; its last one may be shorter.
   Call it at most once per ring, before its first transfer. Returns 0, or -errno: then the ring works without. */
int db_ring_register(struct db_ring *ring, void *base, uint64_t bytes, uint64_t stride_bytes, uint64_t piece_bytes);

/* Whether memory is registered and the kernel has accepted all commands on it so far. */
int db_ring_registered(const struct db_ring *ring);

/* Cancel commands in flight and close. Returns the number of commands that the kernel still owns: then the ring stays
   open, and their memory must never be reused. */
unsigned db_ring_close(struct db_ring *ring);

/* Queue a transfer of `bytes` between `buffer` and device offset `offset` in commands of at most `chunk_bytes`.
   `mirror` may be NULL. Nothing is submitted before a wait. Returns NULL when there is no memory. */
struct db_transfer *db_start(struct db_ring *ring, int write, void *buffer, uint64_t offset, uint64_t bytes,
                             uint64_t chunk_bytes, const struct db_mirror *mirror);

/* Wait for a transfer and free it; all others of the ring are served too. Returns 0 when every byte has moved, a
   positive NVMe status, or -errno: -ERANGE (outside the owned bytes), -ENODATA (end of file), -EIO (a completion that
   ends inside a block), -ETIMEDOUT (no completion for `timeout_ns`; the ring's other transfers in flight fail too), or
   the kernel's own. */
int db_wait(struct db_ring *ring, struct db_transfer *transfer, uint64_t timeout_ns, struct db_result *result);

/* Ask the kernel for the direct-I/O alignment of `fd` (statx, Linux 6.1). Returns 0, -EOPNOTSUPP if the file system has
   no direct I/O, or -ENOSYS if the kernel does not say. */
int db_dio_alignment(int fd, uint32_t *memory_bytes, uint32_t *offset_bytes);
