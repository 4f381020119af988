#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#include "clock.h"

#define MAX_QUEUES 256
#define ROUNDING_NS 1.0

struct db_clock {
    pthread_mutex_t lock;
    double read_ns_per_byte, write_ns_per_byte;
    uint64_t latency_ns;
    uint64_t at_ns;              /* the time for which `served` is right */
    double served;               /* service that an always busy queue has had */
    int n_queues;
    double booked[MAX_QUEUES];   /* the service at which each queue's last command is complete */
};

struct db_clock *db_clock_new(double read_ns_per_byte, double write_ns_per_byte, uint64_t latency_ns)
{
    struct db_clock *clock = calloc(1, sizeof(*clock));
    if (!clock)
        return NULL;
    pthread_mutex_init(&clock->lock, NULL);
    clock->read_ns_per_byte = read_ns_per_byte;
    clock->write_ns_per_byte = write_ns_per_byte;
    clock->latency_ns = latency_ns;
    return clock;
}

void db_clock_free(struct db_clock *clock)
{
    pthread_mutex_destroy(&clock->lock);
    free(clock);
}

int db_clock_join(struct db_clock *clock)
{
    pthread_mutex_lock(&clock->lock);
    int queue = clock->n_queues < MAX_QUEUES ? clock->n_queues++ : -EUSERS;
    pthread_mutex_unlock(&clock->lock);
    return queue;
}

/* Count the queues with commands left at `served`; `dry` is the service at which the first of them becomes empty. */
static unsigned busy_queues(const struct db_clock *clock, double served, double *dry)
{
    unsigned n = 0;
    for (int queue = 0; queue < clock->n_queues; queue++) {
        double booked = clock->booked[queue];
        if (booked <= served)
            continue;
        if (!n++ || booked < *dry)
            *dry = booked;
    }
    return n;
}

static void advance(struct db_clock *clock, uint64_t now_ns)
{
    while (clock->at_ns < now_ns) {
        double dry = 0, passed_ns = (double)(now_ns - clock->at_ns);
        unsigned n = busy_queues(clock, clock->served, &dry);
        if (!n || (dry - clock->served) * n > passed_ns) {
            clock->served += n ? passed_ns / n : 0;
            clock->at_ns = now_ns;
        } else {
            clock->at_ns += (uint64_t)((dry - clock->served) * n);
            clock->served = dry;
        }
    }
}

double db_clock_issue(struct db_clock *clock, int queue, int write, uint64_t bytes, uint64_t now_ns)
{
    pthread_mutex_lock(&clock->lock);
    advance(clock, now_ns);
    double *booked = &clock->booked[queue];
    double from = *booked > clock->served ? *booked : clock->served;
    *booked = from + (double)bytes * (write ? clock->write_ns_per_byte : clock->read_ns_per_byte);
    double ticket = *booked;
    pthread_mutex_unlock(&clock->lock);
    return ticket;
}

uint64_t db_clock_due(struct db_clock *clock, double ticket, uint64_t now_ns)
{
    pthread_mutex_lock(&clock->lock);
    advance(clock, now_ns);
    double served = clock->served, left_ns = 0, dry = 0;
    while (served + ROUNDING_NS < ticket) {
        unsigned n = busy_queues(clock, served, &dry);
        double until = n && dry < ticket ? dry : ticket;
        left_ns += (until - served) * (n ? n : 1);
        served = until;
    }
    uint64_t due_ns = left_ns > 0 ? clock->at_ns + (uint64_t)left_ns + clock->latency_ns : 0;
    pthread_mutex_unlock(&clock->lock);
    return due_ns;
}
