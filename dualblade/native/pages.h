/* Guards for the mapped pages of a file. When a disk fails, a load or a store of a page raises SIGBUS, which kills the
   process, and a failed write-back is silent. All calls may come from any thread. */

struct db_guard {
    uintptr_t start;        /* start of a page */
    uint64_t bytes;
    int64_t failed_byte;    /* first byte of the range that faulted; -1: none */
    struct db_guard *next;
};

/* Until db_unguard, a fault in the range gives zeros, from the page without data to the end of the range. Call
   db_unguard before the range is unmapped. Other faults are handled as if there were no guard. */
void db_guard(struct db_guard *guard);
void db_unguard(struct db_guard *guard);

/* Returns 0, or -errno if a page could not be written back since `fd` was opened or since the last report. The kernel
   reports an error once per open file, here or in fsync (errseq). This writes nothing and waits for nothing. */
int db_write_back_error(int fd);
