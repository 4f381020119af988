/* A stated device, slower than the real one: a single server that all queues of commands share alike, as an NVMe
   controller does that takes from its submission queues in turn. What it idles is not made up. Times are nanoseconds of
   any clock that does not go back; they are passed in. All calls may come from any thread. */

struct db_clock;

/* NULL without memory. */
struct db_clock *db_clock_new(double read_ns_per_byte, double write_ns_per_byte, uint64_t latency_ns);
void db_clock_free(struct db_clock *clock);

/* A new queue: its number, or -EUSERS. */
int db_clock_join(struct db_clock *clock);

/* Put a command at the end of a queue. Returns its ticket: how long each busy queue must have been served since the
   beginning for the command to be through. */
double db_clock_issue(struct db_clock *clock, int queue, int write, uint64_t bytes, uint64_t now_ns);

/* When a command will be complete if no other comes; commands that come later can only delay it. 0: it is served
   already, and complete at the time that was last returned. */
uint64_t db_clock_due(struct db_clock *clock, double ticket, uint64_t now_ns);
