/* A file's pages in memory, where a disk that fails answers a load or a store with SIGBUS, which ends a process, and a
   write-back with nothing at all. All calls may come from any thread. */

struct db_guard {
    uintptr_t start;        /* of a page */
    uint64_t bytes;
    int64_t failed_byte;    /* the first of the range that faulted, or -1: all of it is the file's */
    struct db_guard *next;
};

/* Until db_unguard, which comes before the range is unmapped, a fault in it is answered with zeros, from the page that
   has no data to the end of the range. Other faults take their course as if there were no guard. */
void db_guard(struct db_guard *guard);
void db_unguard(struct db_guard *guard);

/* The error of a page that could not be written back since `fd` was opened, or since it was last told: 0 or -errno. The
   kernel tells it once to each opening, here or in fsync (errseq). Nothing is written or waited for. */
int db_write_back_error(int fd);
