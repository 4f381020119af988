/* An emulated device, slower than the real one: one server that all queues of commands share equally, like an NVMe
   controller that takes from its submission queues in turn. Idle time earns no credit. The caller passes times in, as
   nanoseconds of any monotonic clock. All calls may come from any thread. */

struct db_clock;

/* Returns NULL when there is no memory. */
struct db_clock *db_clock_new(double read_ns_per_byte, double write_ns_per_byte, uint64_t latency_ns);
void db_clock_free(struct db_clock *clock);

/* Add a queue. Returns its number, or -EUSERS. */
int db_clock_join(struct db_clock *clock);

/* Put a command at the end of a queue. Returns its ticket: the service, since the start, that each busy queue must have
   had when the command is complete. */
double db_clock_issue(struct db_clock *clock, int queue, int write, uint64_t bytes, uint64_t now_ns);

/* Returns the time at which a command will be complete if no other comes; later commands can only delay it. Returns 0
   if it is served already: then it is complete at the time that was last returned. */
uint64_t db_clock_due(struct db_clock *clock, double ticket, uint64_t now_ns);
