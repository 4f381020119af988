#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pages.h"

#define BEYOND_ANY_FILE (INT64_MAX / 2)

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct sigaction previous;
static uintptr_t page_bytes;
static atomic_flag held = ATOMIC_FLAG_INIT; /* guards the list; a signal handler may not use a mutex */
static struct db_guard *guards;

static void lock(void)
{
    while (atomic_flag_test_and_set(&held))
        sched_yield();
}

static void unlock(void)
{
    atomic_flag_clear(&held);
}

static void pass_on(int signal, siginfo_t *info, void *context)
{
    if (previous.sa_flags & SA_SIGINFO) {
        previous.sa_sigaction(signal, info, context);
    } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
        previous.sa_handler(signal);
    } else {
        sigaction(signal, &previous, NULL);
        raise(signal); /* delivered when the handler returns */
    }
}

static bool fill_with_zeros(struct db_guard *guard, uintptr_t at)
{
    uintptr_t page = at - at % page_bytes, end = guard->start + guard->bytes;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
    if (mmap((void *)page, end - page, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED)
        return false;
    int64_t failed_byte = (int64_t)(at - guard->start);
    if (guard->failed_byte < 0 || failed_byte < guard->failed_byte)
        guard->failed_byte = failed_byte;
    return true;
}

/* Find the guard by address, since torch may copy in other threads than the one that set up the guard. */
static bool answer(uintptr_t at)
{
    lock();
    struct db_guard *guard = guards;
    while (guard && at - guard->start >= guard->bytes)
        guard = guard->next;
    bool answered = guard && fill_with_zeros(guard, at);
    unlock();
    return answered;
}

static void on_fault(int signal, siginfo_t *info, void *context)
{
    int error = errno;
    if (info->si_code != BUS_ADRERR || !answer((uintptr_t)info->si_addr))
        pass_on(signal, info, context);
    errno = error;
}

static void forget_all(void)
{
    guards = NULL;
    unlock();
}

static void set_up(void)
{
    pthread_atfork(NULL, NULL, forget_all); /* a child has none of the threads with guards */
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    sigaction(SIGBUS, &action, &previous);
}

void db_guard(struct db_guard *guard)
{
    pthread_once(&once, set_up);
    lock();
    guard->failed_byte = -1;
    guard->next = guards;
    guards = guard;
    unlock();
}

void db_unguard(struct db_guard *guard)
{
    lock();
    struct db_guard **place = &guards;
    while (*place != guard)
        place = &(*place)->next;
    *place = guard->next;
    unlock();
}

/* sync_file_range waits for the pages of a range, so this asks about a range without pages. */
int db_write_back_error(int fd)
{
    return sync_file_range(fd, BEYOND_ANY_FILE, 1, SYNC_FILE_RANGE_WAIT_BEFORE) ? -errno : 0;
}
