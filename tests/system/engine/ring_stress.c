/* Rings in several threads on one file and one clock, for a sanitizer to watch. argv: file, rounds. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "ring.h"

#define THREADS 4
#define BLOCK 4096u
#define PART (64 * BLOCK)
#define QUEUED 4

static int fd, rounds;
static struct db_clock *the_clock;
static int failures;
static pthread_barrier_t all_done;

static void check(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "%s\n", what);
        __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
    }
}

/* Move a thread's part in QUEUED transfers, all queued before the first is waited for. */
static void move(struct db_ring *ring, int write, char *buffer, uint64_t first, char *mirrored)
{
    struct db_transfer *queued[QUEUED];
    struct db_result result;
    uint64_t share = PART / QUEUED;
    for (int i = 0; i < QUEUED; i++) {
        struct db_mirror mirror = {mirrored + i * share, 0, share, 4 * BLOCK};
        char *place = mirrored ? buffer : buffer + i * share;
        queued[i] = db_start(ring, write, place, first + i * share, share, 3 * BLOCK, mirrored ? &mirror : NULL);
    }
    for (int i = 0; i < QUEUED; i++)
        check(db_wait(ring, queued[i], 10000000000ull, &result) == 0, "a transfer failed");
}

static void *work(void *argument)
{
    uint64_t number = (uint64_t)(uintptr_t)argument, first = number * PART;
    char *written = aligned_alloc(BLOCK, PART), *read = aligned_alloc(BLOCK, PART), *mirrored = malloc(PART);
    struct db_device device = {.fd = fd, .block_bytes = BLOCK, .first_byte = first, .end_byte = first + PART};
    struct db_ring *ring;
    check(db_ring_open(&ring, &device, 4, number % 2 ? the_clock : NULL) == 0, "no ring");
    for (int round = 0; round < rounds; round++) {
        for (uint64_t i = 0; i < PART; i++)
            written[i] = (char)(i * 31 + number * 7 + (uint64_t)round);
        move(ring, 1, written, first, NULL);
        move(ring, 0, read, first, NULL);
        check(memcmp(read, written, PART) == 0, "read differs from what was written");
        move(ring, 0, read, first, mirrored);
        check(memcmp(mirrored, written, PART) == 0, "mirrored read differs from what was written");
    }
    pthread_barrier_wait(&all_done); /* a ring's memory is unmapped behind the sanitizer's back, and must not come again */
    check(db_ring_close(ring) == 0, "commands were left");
    free(written);
    free(read);
    free(mirrored);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    fd = open(argv[1], O_RDWR | O_CREAT | O_DIRECT, 0600);
    rounds = atoi(argv[2]);
    if (fd < 0 || ftruncate(fd, THREADS * PART) < 0)
        return 3;
    the_clock = db_clock_new(0.1, 0.1, 1000);
    pthread_barrier_init(&all_done, NULL, THREADS);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    db_clock_free(the_clock);
    return failures != 0;
}
