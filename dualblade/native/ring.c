#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/nvme_ioctl.h>
#include <linux/stat.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "ring.h"

#define MAX_RETRIES 64u                     /* of one command, on EINTR and EAGAIN */
#define MAX_NVME_RETRIES 5u                 /* of one command, on a status that allows it; as in the kernel */
#define CANCEL_GRACE_NS 5000000000ull       /* time for the kernel to return cancelled commands */
#define CANCEL_DATA UINT64_MAX              /* user_data of the cancel request itself */

/* NVM command set, figure "Opcodes"; base specification, figure "Completion Queue Entry: Status Field". */
#define NVME_WRITE 0x01
#define NVME_READ 0x02
#define NVME_DO_NOT_RETRY 0x4000
#define NVME_MAX_BLOCKS  0x10000u           /* NLB is 16 bits wide, and 0 stands for 1 */

struct command {
    struct db_transfer *transfer;
    char *buffer;
    uint64_t offset;
    uint64_t bytes;
    double ticket;          /* of the ring's clock */
    uint64_t due_ns;        /* when it will be complete, as far as is known */
    int res;
    unsigned retries;
    bool held;              /* complete in the kernel, but not yet by the clock */
    bool fixed;             /* issued with registered memory */
};

struct db_transfer {
    struct db_transfer *next;
    char *buffer;
    uint64_t offset, bytes, chunk_bytes;
    uint64_t issued;
    uint64_t stride;        /* between a mirrored transfer's slots in the staging */
    struct db_mirror mirror;
    bool write, mirrored;
    bool kept;              /* the kernel did not return its cancelled commands */
    unsigned in_flight;
    int error;              /* first failure; nothing new is issued after it */
    struct db_result result;
};

/* Registered memory. The kernel gets each piece as a buffer of its own: Linux 6.1 counts the segments of a native command
   from its start to the end of the whole buffer (block/blk-map.c, blk_rq_map_user_bvec), and refuses too many. */
struct pieces {
    uintptr_t base;
    uint64_t bytes, stride_bytes, piece_bytes;
};

struct db_ring {
    struct io_uring uring;
    struct db_device device;
    struct db_clock *clock;
    struct pieces pieces;               /* none if `bytes` is 0 */
    int queue;                          /* its number on the clock */
    unsigned queue_depth;
    struct command *commands;
    unsigned *idle;                     /* stack of free slots in `commands` */
    unsigned n_idle, in_flight, n_held; /* held commands count as in flight */
    bool cancelling;                    /* nothing new is issued */
    struct db_transfer *first, *last;   /* transfers in the order of db_start, until waited for */
    struct db_transfer *issuing;        /* the first that has commands to issue */
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static int setup_uring(struct io_uring *uring, unsigned entries, unsigned flags)
{
    struct io_uring_params params = {.flags = flags | IORING_SETUP_COOP_TASKRUN};
    int rc = io_uring_queue_init_params(entries, uring, &params);
    if (rc != -EINVAL)
        return rc;
    memset(&params, 0, sizeof(params)); /* Linux before 5.19 has no COOP_TASKRUN */
    params.flags = flags;
    return io_uring_queue_init_params(entries, uring, &params);
}

static void release(struct db_ring *ring)
{
    free(ring->idle);
    free(ring->commands);
    free(ring);
}

int db_ring_open(struct db_ring **out, const struct db_device *device, unsigned queue_depth, struct db_clock *clock)
{
    struct db_ring *ring = calloc(1, sizeof(*ring));
    if (!ring)
        return -ENOMEM;
    ring->commands = calloc(queue_depth, sizeof(*ring->commands));
    ring->idle = calloc(queue_depth, sizeof(*ring->idle));
    ring->queue_depth = queue_depth;
    ring->device = *device;
    ring->clock = clock;
    ring->queue = clock ? db_clock_join(clock) : 0;
    unsigned flags = device->nsid ? IORING_SETUP_SQE128 | IORING_SETUP_CQE32 : 0;
    if (device->iopoll)
        flags |= IORING_SETUP_IOPOLL;
    int rc = ring->commands && ring->idle ? setup_uring(&ring->uring, queue_depth + 1, flags) : -ENOMEM;
    if (rc == 0 && ring->queue < 0) {
        io_uring_queue_exit(&ring->uring);
        rc = ring->queue;
    }
    if (rc == 0) {
        rc = io_uring_register_files(&ring->uring, &device->fd, 1);
        if (rc < 0)
            io_uring_queue_exit(&ring->uring);
    }
    if (rc < 0) {
        release(ring);
        return rc;
    }
    while (ring->n_idle < queue_depth) {
        ring->idle[ring->n_idle] = queue_depth - 1 - ring->n_idle;
        ring->n_idle++;
    }
    *out = ring;
    return 0;
}

/* Returns the number of the piece that holds byte `offset`, and where that piece begins and ends. */
static uint64_t piece_at(const struct pieces *pieces, uint64_t offset, uint64_t *first, uint64_t *end)
{
    uint64_t stride = offset / pieces->stride_bytes, in_stride = offset % pieces->stride_bytes / pieces->piece_bytes;
    uint64_t stride_end = (stride + 1) * pieces->stride_bytes < pieces->bytes ? (stride + 1) * pieces->stride_bytes
                                                                             : pieces->bytes;
    *first = stride * pieces->stride_bytes + in_stride * pieces->piece_bytes;
    *end = *first + pieces->piece_bytes < stride_end ? *first + pieces->piece_bytes : stride_end;
    return stride * ((pieces->stride_bytes + pieces->piece_bytes - 1) / pieces->piece_bytes) + in_stride;
}

int db_ring_register(struct db_ring *ring, void *base, uint64_t bytes, uint64_t stride_bytes, uint64_t piece_bytes)
{
    struct pieces pieces = {(uintptr_t)base, bytes, stride_bytes, piece_bytes};
    uint64_t first, end, n = piece_at(&pieces, bytes - 1, &first, &end) + 1;
    struct iovec *iovecs = n <= UINT16_MAX ? calloc(n, sizeof(*iovecs)) : NULL;
    if (!iovecs)
        return -ENOMEM;
    for (uint64_t offset = 0; offset < bytes; offset = end) {
        uint64_t number = piece_at(&pieces, offset, &first, &end);
        iovecs[number] = (struct iovec){(char *)base + first, end - first};
    }
    int rc = io_uring_register_buffers(&ring->uring, iovecs, (unsigned)n);
    free(iovecs);
    if (rc == 0)
        ring->pieces = pieces;
    return rc;
}

int db_ring_registered(const struct db_ring *ring)
{
    return ring->pieces.bytes != 0;
}

/* Returns the piece of registered memory that holds a command, or -1. */
static int piece_of(const struct pieces *pieces, const struct command *command)
{
    uint64_t offset = (uintptr_t)command->buffer - pieces->base, first, end;
    if ((uintptr_t)command->buffer < pieces->base || offset >= pieces->bytes)
        return -1;
    uint64_t number = piece_at(pieces, offset, &first, &end);
    return offset + command->bytes <= end ? (int)number : -1;
}

struct db_transfer *db_start(struct db_ring *ring, int write, void *buffer, uint64_t offset, uint64_t bytes,
                             uint64_t chunk_bytes, const struct db_mirror *mirror)
{
    struct db_transfer *t = calloc(1, sizeof(*t));
    if (!t)
        return NULL;
    *t = (struct db_transfer){.write = write, .buffer = buffer, .offset = offset, .bytes = bytes,
                              .chunk_bytes = chunk_bytes, .mirrored = mirror != NULL};
    if (mirror) {
        uint64_t share = mirror->staging_bytes / ring->queue_depth & -(uint64_t)ring->device.block_bytes;
        t->mirror = *mirror;
        t->stride = share;
        t->chunk_bytes = chunk_bytes < share ? chunk_bytes : share;
        t->error = share ? 0 : -ENOBUFS;
    }
    if (ring->last)
        ring->last->next = t;
    else
        ring->first = t;
    ring->last = t;
    if (!ring->issuing)
        ring->issuing = t;
    return t;
}

static void fail(struct db_transfer *t, int error, uint64_t offset)
{
    if (t->error)
        return;
    t->error = error;
    t->result.failed_byte = offset;
}

static bool within_bounds(const struct db_device *device, const struct command *command)
{
    bool inside = command->offset >= device->first_byte && command->bytes <= device->end_byte - device->first_byte &&
                  command->offset - device->first_byte <= device->end_byte - device->first_byte - command->bytes;
    if (!device->nsid)
        return inside;
    return inside && (command->offset | command->bytes) % device->block_bytes == 0 &&
           command->bytes / device->block_bytes <= NVME_MAX_BLOCKS;
}

static void prepare(const struct db_ring *ring, struct command *command, struct io_uring_sqe *sqe)
{
    bool write = command->transfer->write;
    if (!ring->device.nsid) {
        io_uring_prep_rw(write ? IORING_OP_WRITE : IORING_OP_READ, sqe, 0, command->buffer, (unsigned)command->bytes,
                         command->offset);
        return;
    }
    uint64_t slba = command->offset / ring->device.block_bytes;
    struct nvme_uring_cmd native = {
        .opcode = write ? NVME_WRITE : NVME_READ,
        .nsid = ring->device.nsid,
        .addr = (uint64_t)(uintptr_t)command->buffer,
        .data_len = (uint32_t)command->bytes,
        .cdw10 = (uint32_t)slba,
        .cdw11 = (uint32_t)(slba >> 32),
        .cdw12 = (uint32_t)(command->bytes / ring->device.block_bytes - 1),
    };
    memset(sqe, 0, 2 * sizeof(*sqe)); /* 128 bytes: the ring has IORING_SETUP_SQE128 */
    sqe->opcode = IORING_OP_URING_CMD;
    sqe->cmd_op = NVME_URING_CMD_IO;
    memcpy(sqe->cmd, &native, sizeof(native));
    int piece = ring->pieces.bytes ? piece_of(&ring->pieces, command) : -1;
    command->fixed = piece >= 0;
    if (command->fixed) {
        sqe->uring_cmd_flags = IORING_URING_CMD_FIXED;
        sqe->buf_index = (uint16_t)piece;
    }
}

/* Queue the command in `slot`. This is the last place before the kernel, so it checks the bounds. */
static void issue(struct db_ring *ring, unsigned slot)
{
    struct command *command = &ring->commands[slot];
    struct db_transfer *t = command->transfer;
    if (!within_bounds(&ring->device, command)) {
        fail(t, -ERANGE, command->offset);
        ring->idle[ring->n_idle++] = slot;
        return;
    }
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->uring); /* never NULL: one entry per slot, and one to cancel */
    prepare(ring, command, sqe);
    sqe->flags |= IOSQE_FIXED_FILE;
    sqe->user_data = slot;
    if (ring->clock) {
        command->ticket = db_clock_issue(ring->clock, ring->queue, t->write, command->bytes, now_ns());
        command->due_ns = db_clock_due(ring->clock, command->ticket, now_ns());
    }
    ring->in_flight++;
    t->in_flight++;
    t->result.commands++;
    t->result.depth_sum += ring->in_flight;
}

/* Fill the idle slots with the next commands, transfer after transfer. */
static void issue_all(struct db_ring *ring)
{
    while (ring->n_idle && ring->issuing) {
        struct db_transfer *t = ring->issuing;
        if (t->issued == t->bytes || t->error) {
            ring->issuing = t->next;
            continue;
        }
        unsigned slot = ring->idle[--ring->n_idle];
        uint64_t rest = t->bytes - t->issued, size = rest < t->chunk_bytes ? rest : t->chunk_bytes;
        char *place = t->buffer + (t->mirrored ? slot * t->stride : t->issued);
        ring->commands[slot] = (struct command){.transfer = t, .buffer = place, .offset = t->offset + t->issued,
                                                .bytes = size};
        t->issued += size;
        issue(ring, slot);
    }
}

/* Copy a command's data to the mirror, as far as it lies in the mirrored part of the transfer. */
static void reflect(const struct command *command, uint64_t bytes)
{
    const struct db_mirror *mirror = &command->transfer->mirror;
    uint64_t start = command->offset - command->transfer->offset, end = start + bytes;
    uint64_t first = start > mirror->from ? start : mirror->from;
    uint64_t last = end < mirror->from + mirror->bytes ? end : mirror->from + mirror->bytes;
    if (first < last)
        memcpy(mirror->target + (first - mirror->from), command->buffer + (first - start), last - first);
}

/* Issue a command, or the rest of it, again. Returns false after `max_retries` tries or if the transfer failed. */
static bool resume(struct db_ring *ring, unsigned slot, unsigned max_retries)
{
    struct command *command = &ring->commands[slot];
    if (command->transfer->error || command->retries++ >= max_retries)
        return false;
    command->transfer->result.resumed++;
    issue(ring, slot);
    return true;
}

/* Returns the bytes that a completion moved; a native command that succeeds moves all of its bytes and returns 0. */
static uint64_t completed_bytes(const struct db_ring *ring, const struct command *command)
{
    if (ring->device.nsid)
        return command->res == 0 ? command->bytes : 0;
    return command->res > 0 && (uint64_t)command->res <= command->bytes ? (uint64_t)command->res : 0;
}

static unsigned retries_allowed(struct db_ring *ring, const struct command *command)
{
    int res = command->res;
    if (res == -EINVAL && command->fixed) { /* this kernel registers memory but refuses commands on it */
        ring->pieces.bytes = 0;
        return MAX_RETRIES;
    }
    if (res == -EINTR || res == -EAGAIN)
        return MAX_RETRIES;
    return ring->device.nsid && res > 0 && !(res & NVME_DO_NOT_RETRY) ? MAX_NVME_RETRIES : 0;
}

/* Handle one completion: done, to be resumed, or failed. */
static void settle(struct db_ring *ring, unsigned slot)
{
    struct command *command = &ring->commands[slot];
    struct db_transfer *t = command->transfer;
    uint64_t bytes = completed_bytes(ring, command);
    ring->in_flight--;
    t->in_flight--;
    if (bytes) {
        if (t->mirrored && !t->error) /* another transfer may use a failed one's mirror by now */
            reflect(command, bytes);
        t->result.moved += bytes;
        command->buffer += bytes;
        command->offset += bytes;
        command->bytes -= bytes;
        if (command->bytes && bytes % ring->device.block_bytes)
            fail(t, -EIO, command->offset);
        else if (command->bytes && resume(ring, slot, UINT32_MAX))
            return;
    } else if (resume(ring, slot, retries_allowed(ring, command))) {
        return;
    } else {
        fail(t, command->res ? command->res : -ENODATA, command->offset);
    }
    ring->idle[ring->n_idle++] = slot;
}

static void hold(struct db_ring *ring, unsigned slot)
{
    ring->commands[slot].held = true;
    ring->n_held++;
}

/* Settle the held commands that are due. Returns 0 if there were any, else the time at which the next one is due. */
static uint64_t settle_due(struct db_ring *ring)
{
    uint64_t now = now_ns(), next_ns = UINT64_MAX;
    unsigned settled = 0;
    for (unsigned slot = 0; ring->n_held && slot < ring->queue_depth; slot++) {
        struct command *command = &ring->commands[slot];
        if (!command->held)
            continue;
        uint64_t due_ns = db_clock_due(ring->clock, command->ticket, now);
        if (due_ns)
            command->due_ns = due_ns;
        if (command->due_ns <= now) {
            command->held = false;
            ring->n_held--;
            settle(ring, slot);
            settled++;
        } else if (command->due_ns < next_ns) {
            next_ns = command->due_ns;
        }
    }
    return settled ? 0 : next_ns;
}

/* Fill the idle slots and submit, so that the device has work until the next wait. */
static void keep_busy(struct db_ring *ring)
{
    issue_all(ring);
    if (io_uring_sq_ready(&ring->uring))
        io_uring_submit(&ring->uring);
}

/* Handle all completions that have arrived. A copy to a mirror takes about as long as a command. So each freed slot is
   filled before the next copy. */
static unsigned collect(struct db_ring *ring)
{
    struct io_uring_cqe *cqe;
    unsigned seen = 0;
    for (; io_uring_cq_ready(&ring->uring) && io_uring_peek_cqe(&ring->uring, &cqe) == 0; seen++) {
        uint64_t slot = cqe->user_data;
        int res = cqe->res;
        io_uring_cqe_seen(&ring->uring, cqe);
        if (slot == CANCEL_DATA)
            continue;
        ring->commands[slot].res = res;
        bool mirrored = ring->commands[slot].transfer->mirrored;
        if (ring->clock)
            hold(ring, (unsigned)slot);
        else
            settle(ring, (unsigned)slot);
        if (mirrored && !ring->cancelling)
            keep_busy(ring);
    }
    return seen;
}

/* Reap on a polled ring, where no interrupt announces a completion; a waiting io_uring_enter would have no timeout. */
static int reap_by_polling(struct db_ring *ring, uint64_t timeout_ns)
{
    uint64_t give_up_ns = now_ns() + timeout_ns;
    struct io_uring_cqe *cqe;
    int rc;
    do
        rc = io_uring_sq_ready(&ring->uring) ? io_uring_submit(&ring->uring) : io_uring_peek_cqe(&ring->uring, &cqe);
    while (!io_uring_cq_ready(&ring->uring) && now_ns() < give_up_ns &&
           (rc >= 0 || rc == -EINTR || rc == -EAGAIN || rc == -EBUSY));
    if (collect(ring))
        return 0;
    return rc >= 0 || rc == -EAGAIN ? -ETIME : rc;
}

/* Submit commands and handle at least one completion. Returns 0, or -errno of the wait itself (-ETIME: none came).
   A signal ends the wait early. If the call had submitted something, it then returns success without a completion. */
static int reap(struct db_ring *ring, uint64_t timeout_ns)
{
    if (ring->device.iopoll)
        return reap_by_polling(ring, timeout_ns);
    struct __kernel_timespec timeout = {.tv_sec = (int64_t)(timeout_ns / 1000000000ull),
                                        .tv_nsec = (long long)(timeout_ns % 1000000000ull)};
    struct io_uring_cqe *cqe = NULL;
    int rc;
    do
        rc = io_uring_submit_and_wait_timeout(&ring->uring, &cqe, 1, &timeout, NULL);
    while (!io_uring_cq_ready(&ring->uring) && (rc >= 0 || rc == -EINTR || rc == -EAGAIN || rc == -EBUSY));
    return collect(ring) ? 0 : rc;
}

/* Reap by the ring's clock: a command is complete when it is complete in the kernel and by the clock. */
static int reap_by_clock(struct db_ring *ring, uint64_t timeout_ns)
{
    uint64_t next_ns = settle_due(ring), now = now_ns();
    if (!next_ns)
        return 0;
    bool waits_for_clock = next_ns != UINT64_MAX;
    int rc = reap(ring, !waits_for_clock ? timeout_ns : next_ns > now ? next_ns - now : 0);
    if (rc == 0 || (waits_for_clock && rc == -ETIME)) {
        settle_due(ring);
        return 0;
    }
    return rc;
}

static int wait_for_some(struct db_ring *ring, uint64_t timeout_ns)
{
    return ring->clock ? reap_by_clock(ring, timeout_ns) : reap(ring, timeout_ns);
}

/* Returns the device offset of the first command of this transfer that is still in flight. */
static uint64_t first_in_flight(const struct db_ring *ring, const struct db_transfer *t)
{
    uint64_t offset = t->offset + t->issued;
    for (unsigned slot = 0; slot < ring->queue_depth; slot++) {
        const struct command *command = &ring->commands[slot];
        if (command->transfer == t && command->bytes && command->offset < offset)
            offset = command->offset;
    }
    return offset;
}

/* Fail every transfer in flight and cancel their commands; the kernel may keep some. */
static void cancel_all(struct db_ring *ring, int error)
{
    for (struct db_transfer *t = ring->first; t; t = t->next)
        if (t->in_flight)
            fail(t, error, first_in_flight(ring, t));
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->uring);
    if (sqe) {
        io_uring_prep_cancel(sqe, NULL, IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL);
        sqe->user_data = CANCEL_DATA;
    }
    ring->cancelling = true;
    uint64_t now = now_ns(), give_up_ns = now + CANCEL_GRACE_NS;
    for (; ring->in_flight && now < give_up_ns && wait_for_some(ring, give_up_ns - now) == 0; now = now_ns())
        ;
    for (struct db_transfer *t = ring->first; t; t = t->next)
        t->kept = t->error && t->in_flight;
    ring->cancelling = false;
}

static void forget(struct db_ring *ring, struct db_transfer *transfer)
{
    struct db_transfer *before = NULL;
    for (struct db_transfer *t = ring->first; t != transfer; t = t->next)
        before = t;
    *(before ? &before->next : &ring->first) = transfer->next;
    if (ring->last == transfer)
        ring->last = before;
    if (ring->issuing == transfer)
        ring->issuing = transfer->next;
    if (!transfer->in_flight)
        free(transfer);
}

int db_wait(struct db_ring *ring, struct db_transfer *t, uint64_t timeout_ns, struct db_result *result)
{
    while ((t->in_flight && !t->kept) || (t->issued < t->bytes && !t->error)) {
        issue_all(ring);
        int rc = ring->in_flight ? wait_for_some(ring, timeout_ns) : 0;
        if (rc < 0) {
            int error = rc == -ETIME ? -ETIMEDOUT : rc;
            cancel_all(ring, error);
            fail(t, error, t->offset + t->issued);
            break;
        }
    }
    int code = t->error ? t->error : t->result.moved == t->bytes ? 0 : -EIO;
    *result = t->result;
    result->in_flight = t->in_flight;
    forget(ring, t);
    keep_busy(ring);
    return code;
}

unsigned db_ring_close(struct db_ring *ring)
{
    if (ring->in_flight)
        cancel_all(ring, -ECANCELED);
    if (ring->in_flight)
        return ring->in_flight;
    while (ring->first)
        forget(ring, ring->first);
    io_uring_unregister_files(&ring->uring); /* the kernel frees a ring later, and would hold the device until then */
    io_uring_queue_exit(&ring->uring);
    release(ring);
    return 0;
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
