#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/stat.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "_uring.h"

#define MOST_RETRIES 64u                    /* of one command, on EINTR and EAGAIN */
#define CANCEL_GRACE_NS 5000000000ull       /* for the kernel to hand back cancelled commands */
#define CANCEL_DATA UINT64_MAX              /* user_data of the cancel request itself */

struct command {
    char *buffer;
    uint64_t offset;
    uint64_t bytes;
    unsigned retries;
};

struct db_ring {
    struct io_uring uring;
    uint64_t first_byte, end_byte;
    unsigned block_bytes, queue_depth;
    unsigned *idle;         /* stack of free slots in `commands` */
    struct command *commands;
};

/* What one db_transfer call is doing. */
struct transfer {
    struct db_ring *ring;
    struct db_result *result;
    const struct db_mirror *mirror;
    uint64_t offset;        /* of the transfer */
    bool write;
    unsigned n_idle;        /* free slots on the ring's stack */
    unsigned in_flight;
    uint64_t moved;
    int error;              /* first failure; nothing new is issued after it */
};

static int setup_uring(struct io_uring *uring, unsigned entries)
{
    struct io_uring_params params = {.flags = IORING_SETUP_COOP_TASKRUN};
    int rc = io_uring_queue_init_params(entries, uring, &params);
    if (rc != -EINVAL)
        return rc;
    memset(&params, 0, sizeof(params)); /* Linux before 5.19 has no COOP_TASKRUN */
    return io_uring_queue_init_params(entries, uring, &params);
}

static void release(struct db_ring *ring)
{
    free(ring->idle);
    free(ring->commands);
    free(ring);
}

int db_ring_open(struct db_ring **out, int fd, unsigned queue_depth, uint64_t first_byte, uint64_t end_byte,
                 unsigned block_bytes)
{
    struct db_ring *ring = calloc(1, sizeof(*ring));
    if (!ring)
        return -ENOMEM;
    ring->commands = calloc(queue_depth, sizeof(*ring->commands));
    ring->idle = calloc(queue_depth, sizeof(*ring->idle));
    ring->queue_depth = queue_depth;
    ring->first_byte = first_byte;
    ring->end_byte = end_byte;
    ring->block_bytes = block_bytes;
    int rc = ring->commands && ring->idle ? setup_uring(&ring->uring, queue_depth + 1) : -ENOMEM;
    if (rc == 0) {
        rc = io_uring_register_files(&ring->uring, &fd, 1);
        if (rc < 0)
            io_uring_queue_exit(&ring->uring);
    }
    if (rc < 0) {
        release(ring);
        return rc;
    }
    *out = ring;
    return 0;
}

void db_ring_close(struct db_ring *ring)
{
    io_uring_queue_exit(&ring->uring);
    release(ring);
}

static void fail(struct transfer *t, int error, const struct command *command)
{
    if (t->error)
        return;
    t->error = error;
    t->result->failed_byte = command->offset;
}

static bool within_bounds(const struct db_ring *ring, const struct command *command)
{
    return command->offset >= ring->first_byte && command->bytes <= ring->end_byte - ring->first_byte &&
           command->offset - ring->first_byte <= ring->end_byte - ring->first_byte - command->bytes;
}

/* Queue the command in `slot`. The bounds are checked here, the last moment before the kernel sees it. */
static void issue(struct transfer *t, unsigned slot)
{
    struct command *command = &t->ring->commands[slot];
    if (!within_bounds(t->ring, command)) {
        fail(t, -ERANGE, command);
        t->ring->idle[t->n_idle++] = slot;
        return;
    }
    struct io_uring_sqe *sqe = io_uring_get_sqe(&t->ring->uring); /* never NULL: one entry per slot, and one to cancel */
    io_uring_prep_rw(t->write ? IORING_OP_WRITE : IORING_OP_READ, sqe, 0, command->buffer, (unsigned)command->bytes,
                     command->offset);
    sqe->flags |= IOSQE_FIXED_FILE;
    sqe->user_data = slot;
    t->in_flight++;
    t->result->commands++;
    t->result->depth_sum += t->in_flight;
}

/* Copy what a command brought on to the mirror, as far as it lies in the part of the transfer that is mirrored. */
static void reflect(const struct transfer *t, const struct command *command, uint64_t bytes)
{
    const struct db_mirror *mirror = t->mirror;
    uint64_t start = command->offset - t->offset, end = start + bytes;
    uint64_t first = start > mirror->from ? start : mirror->from;
    uint64_t last = end < mirror->from + mirror->bytes ? end : mirror->from + mirror->bytes;
    if (first < last)
        memcpy(mirror->target + (first - mirror->from), command->buffer + (first - start), last - first);
}

static void resume(struct transfer *t, unsigned slot)
{
    t->result->resumed++;
    issue(t, slot);
}

/* Account for one completion: done, to be resumed, or failed. */
static void settle(struct transfer *t, unsigned slot, int res)
{
    struct command *command = &t->ring->commands[slot];
    t->in_flight--;
    if (res > 0 && (uint64_t)res <= command->bytes) {
        if (t->mirror)
            reflect(t, command, (uint64_t)res);
        t->moved += (uint64_t)res;
        command->buffer += res;
        command->offset += (uint64_t)res;
        command->bytes -= (uint64_t)res;
        if (command->bytes && res % t->ring->block_bytes)
            fail(t, -EIO, command);
        else if (command->bytes && !t->error)
            return resume(t, slot);
    } else if ((res == -EINTR || res == -EAGAIN) && !t->error && command->retries++ < MOST_RETRIES) {
        return resume(t, slot);
    } else {
        fail(t, res < 0 ? res : -ENODATA, command);
    }
    t->ring->idle[t->n_idle++] = slot;
}

/* Submit what is queued and settle at least one completion. 0, or -errno of the wait itself (-ETIME: none came).
   A signal ends the wait early; when it also submitted something, that shows only as a success without a completion. */
static int reap(struct transfer *t, uint64_t timeout_ns)
{
    struct __kernel_timespec timeout = {.tv_sec = (int64_t)(timeout_ns / 1000000000ull),
                                        .tv_nsec = (long long)(timeout_ns % 1000000000ull)};
    struct io_uring_cqe *cqe = NULL;
    int rc;
    do
        rc = io_uring_submit_and_wait_timeout(&t->ring->uring, &cqe, 1, &timeout, NULL);
    while (!io_uring_cq_ready(&t->ring->uring) && (rc >= 0 || rc == -EINTR || rc == -EAGAIN || rc == -EBUSY));
    unsigned head, seen = 0;
    io_uring_for_each_cqe(&t->ring->uring, head, cqe) {
        seen++;
        if (cqe->user_data != CANCEL_DATA)
            settle(t, (unsigned)cqe->user_data, cqe->res);
    }
    io_uring_cq_advance(&t->ring->uring, seen);
    return seen ? 0 : rc;
}

/* After a wait that brought nothing: ask for the commands back, and report what the kernel will not return. */
static void cancel_all(struct transfer *t, int error)
{
    static const struct command nowhere;
    fail(t, error == -ETIME ? -ETIMEDOUT : error, &nowhere);
    struct io_uring_sqe *sqe = io_uring_get_sqe(&t->ring->uring);
    if (sqe) {
        io_uring_prep_cancel(sqe, NULL, IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL);
        sqe->user_data = CANCEL_DATA;
    }
    while (t->in_flight && reap(t, CANCEL_GRACE_NS) == 0)
        ;
    t->result->in_flight = t->in_flight;
}

int db_transfer(struct db_ring *ring, int write, void *buffer, uint64_t offset, uint64_t bytes, uint64_t chunk_bytes,
                uint64_t timeout_ns, const struct db_mirror *mirror, struct db_result *result)
{
    struct transfer t = {.ring = ring, .result = result, .mirror = mirror, .offset = offset, .write = write,
                         .n_idle = ring->queue_depth};
    uint64_t issued = 0;
    if (mirror && chunk_bytes > mirror->staging_bytes)
        chunk_bytes = mirror->staging_bytes;
    if (mirror && t.n_idle > mirror->staging_bytes / chunk_bytes)
        t.n_idle = (unsigned)(mirror->staging_bytes / chunk_bytes);
    memset(result, 0, sizeof(*result));
    for (unsigned slot = 0; slot < t.n_idle; slot++)
        ring->idle[slot] = slot;
    while (t.in_flight || (issued < bytes && !t.error)) {
        while (t.n_idle && issued < bytes && !t.error) {
            unsigned slot = ring->idle[--t.n_idle];
            uint64_t size = bytes - issued < chunk_bytes ? bytes - issued : chunk_bytes;
            char *place = (char *)buffer + (mirror ? slot * chunk_bytes : issued);
            ring->commands[slot] = (struct command){place, offset + issued, size, 0};
            issued += size;
            issue(&t, slot);
        }
        int rc = t.in_flight ? reap(&t, timeout_ns) : 0;
        if (rc < 0) {
            cancel_all(&t, rc);
            break;
        }
    }
    return t.error ? t.error : t.moved == bytes ? 0 : -EIO;
}

int db_dio_alignment(int fd, uint32_t *memory_bytes, uint32_t *offset_bytes)
{
#ifdef STATX_DIOALIGN
    struct statx status;
    if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) < 0)
        return -errno;
    if (status.stx_mask & STATX_DIOALIGN) {
        *memory_bytes = status.stx_dio_mem_align;
        *offset_bytes = status.stx_dio_offset_align;
        return *offset_bytes ? 0 : -EOPNOTSUPP;
    }
#else
    (void)fd, (void)memory_bytes, (void)offset_bytes;
#endif
    return -ENOSYS;
}
