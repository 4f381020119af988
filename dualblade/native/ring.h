/* The direct path's transfer loop. A transfer moves one run of a tensor; transfers queue on a ring, and up to
   `queue_depth` commands of theirs are in flight at once: the first commands of the next transfer follow the last ones
   of this, so the device's queue never drains between two. A ring belongs to one thread at a time. */

struct db_clock;
struct db_ring;
struct db_transfer;

/* What a ring sends its commands to. `nsid` is 0 for ordinary reads and writes of a file or block device, else the
   namespace of the NVMe character device `fd`, which then gets native commands (io_uring_cmd). */
struct db_device {
    int fd;
    uint32_t nsid;
    uint32_t block_bytes;   /* a power of two */
    uint64_t first_byte;    /* nothing outside [first_byte, end_byte) is ever sent */
    uint64_t end_byte;
    int iopoll;             /* ask for completions of native commands instead of waiting for interrupts */
};

/* Where a read goes on to, piece by piece as its commands complete: its bytes [from, from + bytes) to `target`.
   The transfer's buffer then holds only what is in flight, in `staging_bytes` that are used over and over (and by all
   mirrored transfers of the ring): they stay in the CPU's cache, where a whole tensor would go through memory again. */
struct db_mirror {
    char *target;
    uint64_t from;
    uint64_t bytes;
    uint64_t staging_bytes; /* at least one block for each command of the queue's depth */
};

struct db_result {
    uint64_t moved;         /* bytes the device has moved */
    uint64_t commands;      /* commands issued, those for the rest of a short transfer included */
    uint64_t depth_sum;     /* sum over commands of the ring's commands in flight at issue, itself included */
    uint64_t failed_byte;   /* device offset of the command that failed first, or of one that gave no answer */
    uint32_t resumed;       /* commands issued again after a short, interrupted or deferred completion */
    uint32_t in_flight;     /* commands the kernel still owns after a timeout; their memory must never be reused */
};

/* Open a ring; `clock` may be NULL; all rings on it share its device, and it must outlive them. 0 or
   -errno. */
int db_ring_open(struct db_ring **out, const struct db_device *device, unsigned queue_depth, struct db_clock *clock);

/* Let the kernel pin `bytes` of memory at `base` once instead of at every native command. Those profit that lie within
   one piece; pieces of `piece_bytes` begin at every multiple of `stride_bytes`, and the last of each may be shorter.
   Once for a ring, before its first transfer. 0 or -errno, and the ring works without. */
int db_ring_register(struct db_ring *ring, void *base, uint64_t bytes, uint64_t stride_bytes, uint64_t piece_bytes);

/* Whether memory is registered and every kernel call so far has taken it. */
int db_ring_registered(const struct db_ring *ring);

/* Cancel what is in flight and close. Returns how many commands the kernel would not give back: the ring stays open
   then, for their memory must never be reused. */
unsigned db_ring_close(struct db_ring *ring);

/* Queue a transfer of `bytes` between `buffer` and device offset `offset` in commands of at most `chunk_bytes`.
   `mirror` may be NULL. Nothing is submitted before a wait. NULL without memory. */
struct db_transfer *db_start(struct db_ring *ring, int write, void *buffer, uint64_t offset, uint64_t bytes,
                             uint64_t chunk_bytes, const struct db_mirror *mirror);

/* Wait for a transfer, serving all others of the ring meanwhile, and free it. Returns 0 when every byte has moved;
   a positive NVMe status; or -errno: -ERANGE (outside the device's bytes), -ENODATA (end of file), -EIO (a completion
   that ends inside a block), -ETIMEDOUT (no completion for `timeout_ns`; the ring's other transfers in flight fail
   with it), or the kernel's own. */
int db_wait(struct db_ring *ring, struct db_transfer *transfer, uint64_t timeout_ns, struct db_result *result);

/* Direct-I/O alignment of `fd` as the kernel states it (statx, Linux 6.1). 0; -EOPNOTSUPP: the file system has no
   direct I/O; -ENOSYS: the kernel cannot tell. */
int db_dio_alignment(int fd, uint32_t *memory_bytes, uint32_t *offset_bytes);
