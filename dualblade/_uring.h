/* The direct path's transfer loop: one call moves one tensor and keeps up to `queue_depth` commands in flight. */

struct db_ring;

struct db_result {
    uint64_t commands;     /* commands issued, those for the rest of a short transfer included */
    uint64_t depth_sum;    /* sum over commands of the commands in flight at issue, itself included */
    uint64_t failed_byte;  /* device offset of the first failed command, when the call returned an error */
    uint32_t resumed;      /* commands issued again after a short, interrupted or deferred completion */
    uint32_t in_flight;    /* commands the kernel still owns after a timeout; their memory must never be reused */
};

/* A ring for transfers on `fd`, which may only touch device bytes [first_byte, end_byte). 0 or -errno. */
int db_ring_open(struct db_ring **out, int fd, unsigned queue_depth, uint64_t first_byte, uint64_t end_byte,
                 unsigned block_bytes);
void db_ring_close(struct db_ring *ring);

/* Where a read goes on to, piece by piece as its commands complete: its bytes [from, from + bytes) to `target`.
   The buffer then holds only what is in flight, in `staging_bytes` (whole blocks) that are used over and over:
   they stay in the CPU's cache, where a buffer for the whole transfer would go through memory once more. */
struct db_mirror {
    char *target;
    uint64_t from;
    uint64_t bytes;
    uint64_t staging_bytes;
};

/* Move `bytes` between `buffer` and device offset `offset` in commands of at most `chunk_bytes`; `mirror` may be NULL.
   Returns 0 when every byte has moved, else -errno: -ERANGE (outside the ring's bytes), -ENODATA (end of file),
   -EIO (a completion that ends inside a block), -ETIMEDOUT (no completion for `timeout_ns`), or the device's own. */
int db_transfer(struct db_ring *ring, int write, void *buffer, uint64_t offset, uint64_t bytes, uint64_t chunk_bytes,
                uint64_t timeout_ns, const struct db_mirror *mirror, struct db_result *result);

/* Direct-I/O alignment of `fd` as the kernel states it (statx, Linux 6.1). 0; -EOPNOTSUPP: the file system has no
   direct I/O; -ENOSYS: the kernel cannot tell. */
int db_dio_alignment(int fd, uint32_t *memory_bytes, uint32_t *offset_bytes);
