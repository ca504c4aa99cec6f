/* Drives many transactional producers over Kafka's protocol, and measures what their commits need.
 *
 *   transactor --port P --frames FILE --count N [options]   prints "begin" and "end" of the measured time, then JSON
 *
 * Every producer has a connection and three prepared frames, size prefix included: InitProducerId, Produce with a batch
 * for each of its partitions, EndTxn. What changes from one transaction to the next is patched in: correlation id,
 * producer id and epoch, the CRC of the batches. Nothing else in here knows the layout of a message; places count from
 * the size prefix on. This is the flow of transactions v2: Produce adds the partitions, each transaction begins at
 * sequence 0, and the answer to EndTxn has the epoch of the next one.
 *
 * A producer begins its next transaction as soon as EndTxn was answered, and keeps it open until it is due to end: the
 * k-th of producer i at (k * N + i) / rate seconds. So a broker has N transactions open all the time, and the time from
 * the end that was due until the next beginning is accepted, which the coordinator refuses until the markers are
 * written, is what a commit takes. Without a rate each ends as soon as it has begun.
 *
 * CONCURRENT_TRANSACTIONS and a coordinator that still loads are tried again as clients do, and counted. Every other
 * error ends the program with a sentence and exit code 1.
 *
 * Left out on purpose: more than one broker, more than one thread, aborts. Linux only.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define PROGRAM "transactor"
#include "../harness/generator.h"

enum {
    MAX_PARTITIONS = 16,
    MAX_RESPONSE = 4096,
    MAX_EVENTS = 256,
    LEVELS = 4, /* of rests between tries */
    /* of a record batch, magic 2 */
    BATCH_CRC = 17,
    BATCH_CHECKED = 21, /* from here to the end */
    BATCH_PRODUCER_ID = 43,
    BATCH_PRODUCER_EPOCH = 51,
    /* error codes */
    COORDINATOR_LOAD_IN_PROGRESS = 14,
    COORDINATOR_NOT_AVAILABLE = 15,
    NOT_COORDINATOR = 16,
    CONCURRENT_TRANSACTIONS = 51,
};

static const int64_t FIRST_REST = 100000000; /* as Java's client and librdkafka: doubled until LEVELS are used up */
static const double STALLED_S = 60.0; /* without any response, or without every first transaction: the server hangs */

enum request { INIT, PRODUCE, END, REQUESTS };
enum state { ASKED, OPEN, RESTING, STOPPED };

struct options {
    int port;
    int count;
    double seconds, warmup, rate;
    const char *frames;
    int id_at[REQUESTS], epoch_at[REQUESTS];             /* in the request END */
    int error_at[REQUESTS];                              /* in the responses INIT and END ... */
    int answered_id_at[REQUESTS], answered_epoch_at[REQUESTS];
    int batch_at[MAX_PARTITIONS], produced_error_at[MAX_PARTITIONS];
    int batches, batch_bytes;
};

struct producer {
    int fd, index;
    enum state state;
    enum request request; /* that was asked, or is to be tried again */
    char *frame[REQUESTS];
    size_t length[REQUESTS];
    int32_t correlation;
    int64_t ended; /* transactions */
    int64_t ends_from; /* when the end that is under way was due, 0 for none */
    char in[MAX_RESPONSE];
    size_t got;
    int refusals; /* one behind the other */
    struct producer *next_resting;
    int64_t rests_until;
};

struct run {
    struct options options;
    struct producer *producers;
    struct producer *first_resting[LEVELS], *last_resting[LEVELS];
    int epoll, timer, ready, asked, stopping;
    int last_refusal;
    int64_t opened, begun, measured_from, ends, due, last_response;
    int64_t retries;
    double cpu_s; /* of this program, within the measured time */
    struct histogram answer, complete;
};

static int read_be16(const char *at) {
    return (int16_t)((unsigned char)at[0] << 8 | (unsigned char)at[1]);
}

/* ---- CRC-32C ---- */

static uint32_t crc_table[256];

static void make_crc_table(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; bit++) value = value & 1 ? value >> 1 ^ 0x82f63b78u : value >> 1;
        crc_table[byte] = value;
    }
}

static uint32_t crc32c(const char *bytes, size_t size) {
    uint32_t value = ~0u;
    for (size_t i = 0; i < size; i++) value = value >> 8 ^ crc_table[(value ^ (unsigned char)bytes[i]) & 255];
    return ~value;
}

/* ---- requests ---- */

static void load(struct run *run) {
    FILE *file = fopen(run->options.frames, "rb");
    if (file == NULL) fail("cannot read %s: %s", run->options.frames, strerror(errno));
    for (int i = 0; i < run->options.count; i++) {
        struct producer *p = &run->producers[i];
        for (int each = 0; each < REQUESTS; each++) {
            char prefix[SIZE_BYTES];
            if (fread(prefix, 1, SIZE_BYTES, file) != SIZE_BYTES) fail("producer %d has no frame %d", i, each);
            p->length[each] = SIZE_BYTES + (size_t)read_be32(prefix);
            p->frame[each] = allocate(p->length[each], 1);
            memcpy(p->frame[each], prefix, SIZE_BYTES);
            size_t rest = p->length[each] - SIZE_BYTES;
            if (fread(p->frame[each] + SIZE_BYTES, 1, rest, file) != rest) fail("producer %d has half a frame", i);
        }
    }
    fclose(file);
}

static void ask(struct run *run, struct producer *p, enum request request) {
    char *frame = p->frame[request];
    write_be32(frame + CORRELATION_IN_REQUEST, (uint32_t)++p->correlation);
    p->state = ASKED;
    p->request = request;
    run->asked++;
    /* one small request is unanswered at most, so the socket takes it whole */
    ssize_t sent = send(p->fd, frame, p->length[request], MSG_NOSIGNAL);
    if (sent != (ssize_t)p->length[request]) fail("producer %d: %s", p->index, sent < 0 ? strerror(errno) : "half sent");
}

/* The epoch of the next transaction into what is sent of it. */
static void renew(struct run *run, struct producer *p, const char *id, const char *epoch) {
    const struct options *o = &run->options;
    memcpy(p->frame[END] + o->id_at[END], id, 8);
    memcpy(p->frame[END] + o->epoch_at[END], epoch, 2);
    for (int i = 0; i < o->batches; i++) {
        char *batch = p->frame[PRODUCE] + o->batch_at[i];
        memcpy(batch + BATCH_PRODUCER_ID, id, 8);
        memcpy(batch + BATCH_PRODUCER_EPOCH, epoch, 2);
        write_be32(batch + BATCH_CRC, crc32c(batch + BATCH_CHECKED, (size_t)o->batch_bytes - BATCH_CHECKED));
    }
}

static int64_t due_time(const struct run *run, const struct producer *p) {
    int64_t number = p->ended * run->options.count + p->index;
    return run->begun + (int64_t)((double)number / run->options.rate * 1e9);
}

/* End the open transaction if it is time. */
static void maybe_end(struct run *run, struct producer *p, int64_t at) {
    if (p->state != OPEN || !run->begun) return;
    if (run->stopping) {
        p->state = STOPPED;
        return;
    }
    int64_t due = run->options.rate > 0 ? due_time(run, p) : at;
    if (due > at) return;
    p->ends_from = due;
    p->ended++;
    ask(run, p, END);
}

static void arm(struct run *run) {
    int64_t next = INT64_MAX;
    if (run->begun && run->options.rate > 0 && !run->stopping)
        next = run->begun + (int64_t)((double)run->due / run->options.rate * 1e9);
    for (int level = 0; level < LEVELS; level++) {
        const struct producer *first = run->first_resting[level];
        if (first && first->rests_until < next) next = first->rests_until;
    }
    struct itimerspec when = {0};
    if (next != INT64_MAX) when.it_value = (struct timespec){.tv_sec = next / SECOND, .tv_nsec = next % SECOND};
    if (timerfd_settime(run->timer, TFD_TIMER_ABSTIME, &when, NULL)) fail("timerfd_settime: %s", strerror(errno));
}

static void follow_schedule(struct run *run) {
    int64_t at = now();
    if (run->begun && run->options.rate > 0) {
        int64_t released = (int64_t)((double)(at - run->begun) * run->options.rate / 1e9) + 1;
        for (int touched = 0; run->due < released && touched < run->options.count; run->due++, touched++)
            maybe_end(run, &run->producers[run->due % run->options.count], at);
        if (run->due < released) run->due = released; /* every producer was looked at once */
    }
    for (int level = 0; level < LEVELS; level++) {
        struct producer *p;
        while ((p = run->first_resting[level]) != NULL && p->rests_until <= at) {
            run->first_resting[level] = p->next_resting;
            if (run->stopping) p->state = STOPPED;
            else ask(run, p, p->request);
        }
    }
    arm(run);
}

static int measures(const struct run *run, int64_t at) {
    return run->begun && at >= run->measured_from && at <= run->ends;
}

static void rest(struct run *run, struct producer *p, int64_t at) {
    int level = p->refusals < LEVELS ? p->refusals : LEVELS - 1;
    int was_empty = run->first_resting[level] == NULL;
    p->refusals++;
    p->state = RESTING;
    p->rests_until = at + (FIRST_REST << level);
    p->next_resting = NULL;
    if (was_empty) run->first_resting[level] = p;
    else run->last_resting[level]->next_resting = p;
    run->last_resting[level] = p;
    if (measures(run, at)) run->retries++;
    if (was_empty) arm(run);
}

/* ---- responses ---- */

static int error_of(const struct run *run, const struct producer *p, size_t length) {
    const struct options *o = &run->options;
    const int *places = p->request == PRODUCE ? o->produced_error_at : &o->error_at[p->request];
    int count = p->request == PRODUCE ? o->batches : 1;
    for (int i = 0; i < count; i++) { /* what stands behind an error has another place */
        if ((size_t)places[i] + 2 > length) fail("producer %d: a response of %zu bytes", p->index, length);
        int code = read_be16(p->in + places[i]);
        if (code != 0) return code;
    }
    return 0;
}

static void answered(struct run *run, struct producer *p, size_t length, int64_t at) {
    const struct options *o = &run->options;
    run->asked--;
    if ((int32_t)read_be32(p->in + SIZE_BYTES) != p->correlation) fail("producer %d: another response", p->index);
    int code = error_of(run, p, length);
    if (code == CONCURRENT_TRANSACTIONS || code == COORDINATOR_LOAD_IN_PROGRESS || code == COORDINATOR_NOT_AVAILABLE ||
        code == NOT_COORDINATOR) {
        run->last_refusal = code;
        rest(run, p, at);
        return;
    }
    if (code != 0) {
        const char *names[REQUESTS] = {"InitProducerId", "Produce", "EndTxn"};
        fail("producer %d: %s has error code %d", p->index, names[p->request], code);
    }
    p->refusals = 0;
    switch (p->request) {
    case END:
        if (measures(run, at)) add(&run->answer, at - p->ends_from);
        /* fall through */
    case INIT:
        if ((size_t)o->answered_epoch_at[p->request] + 2 > length) fail("producer %d: no epoch", p->index);
        renew(run, p, p->in + o->answered_id_at[p->request], p->in + o->answered_epoch_at[p->request]);
        if (run->stopping) p->state = STOPPED;
        else ask(run, p, PRODUCE);
        return;
    case PRODUCE:
        p->state = OPEN;
        if (p->ends_from && measures(run, at)) add(&run->complete, at - p->ends_from);
        if (!run->begun && p->ended == 0) run->ready++;
        p->ends_from = 0;
        maybe_end(run, p, at);
        return;
    default:
        return;
    }
}

static void receive(struct run *run, struct producer *p) {
    ssize_t got = recv(p->fd, p->in + p->got, MAX_RESPONSE - p->got, 0);
    if (got < 0) {
        if (errno == EAGAIN || errno == EINTR) return;
        fail("producer %d: %s", p->index, strerror(errno));
    }
    if (got == 0) fail("producer %d: closed by the server", p->index);
    p->got += (size_t)got;
    if (p->got < 2 * SIZE_BYTES) return;
    size_t length = SIZE_BYTES + (size_t)read_be32(p->in);
    if (length > MAX_RESPONSE) fail("producer %d: a response of %zu bytes", p->index, length);
    if (p->got < length) return;
    if (p->got > length || p->state != ASKED) fail("producer %d: a response that nobody asked for", p->index);
    p->got = 0;
    int64_t at = now();
    run->last_response = at;
    answered(run, p, length, at);
}

/* ---- life of a run ---- */

static void open_connection(struct run *run, struct producer *p, int index) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)run->options.port)};
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    p->index = index;
    p->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (p->fd < 0) fail("socket %d: %s", index, strerror(errno));
    if (connect(p->fd, (struct sockaddr *)&address, sizeof address)) fail("connect: %s", strerror(errno));
    int on = 1;
    setsockopt(p->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(p->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = p};
    if (epoll_ctl(run->epoll, EPOLL_CTL_ADD, p->fd, &event)) fail("epoll_ctl: %s", strerror(errno));
    ask(run, p, INIT);
}

static void begin(struct run *run) {
    const struct options *o = &run->options;
    run->begun = now();
    run->measured_from = run->begun + (int64_t)(o->warmup * 1e9);
    run->ends = run->measured_from + (int64_t)(o->seconds * 1e9);
    if (o->rate > 0) {
        follow_schedule(run);
        return;
    }
    for (int i = 0; i < o->count; i++) maybe_end(run, &run->producers[i], run->begun);
}

static double own_cpu_s(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void loop(struct run *run) {
    struct epoll_event events[MAX_EVENTS];
    int told = 0;
    run->opened = run->last_response = now();
    for (;;) {
        if (!run->begun && run->ready == run->options.count) begin(run);
        if (run->stopping && run->asked == 0) return;
        int count = epoll_wait(run->epoll, events, MAX_EVENTS, 100);
        if (count < 0 && errno != EINTR) fail("epoll_wait: %s", strerror(errno));
        for (int i = 0; i < count; i++) {
            struct producer *p = events[i].data.ptr;
            if (p != NULL) {
                receive(run, p);
                continue;
            }
            uint64_t expirations;
            if (read(run->timer, &expirations, sizeof expirations) > 0) follow_schedule(run);
        }
        int64_t at = now();
        if (run->begun && !told && at >= run->measured_from) {
            say("begin");
            run->cpu_s = -own_cpu_s();
            told = 1;
        }
        if (run->begun && !run->stopping && at >= run->ends) {
            run->stopping = 1;
            run->cpu_s += own_cpu_s();
            say("end");
        }
        if ((double)(at - run->last_response) / 1e9 > STALLED_S && run->asked) fail("no response for %.0f s", STALLED_S);
        if (!run->begun && (double)(at - run->opened) / 1e9 > STALLED_S)
            fail("%d of %d producers could begin within %.0f s, the last refusal was %d", run->ready,
                 run->options.count, STALLED_S, run->last_refusal);
    }
}

static void report_times(const char *name, const struct histogram *histogram) {
    printf("\"%s\": {\"p50\": %.1f, \"p99\": %.1f, \"p999\": %.1f}, ", name, quantile_us(histogram, 0.5),
           quantile_us(histogram, 0.99), quantile_us(histogram, 0.999));
}

static void report(const struct run *run) {
    printf("{\"transactions\": %ld, \"seconds\": %.6f, ", (long)run->complete.count, run->options.seconds);
    report_times("answer_us", &run->answer);
    report_times("complete_us", &run->complete);
    printf("\"retries\": %ld, \"client_cpu_s\": %.3f}\n", (long)run->retries, run->cpu_s);
}

static int parse_list(const char *text, int *values) {
    int count = 0;
    for (char *end; *text; text = *end ? end + 1 : end) {
        if (count == MAX_PARTITIONS) fail("more than %d partitions", MAX_PARTITIONS);
        values[count++] = (int)strtol(text, &end, 10);
    }
    return count;
}

static struct options parse(int count, char **arguments) {
    struct options o = {.seconds = 10};
    static const struct option known[] = {
        {"port", 1, NULL, 'p'},        {"frames", 1, NULL, 'f'},       {"count", 1, NULL, 'n'},
        {"seconds", 1, NULL, 's'},     {"warmup", 1, NULL, 'u'},       {"rate", 1, NULL, 'r'},
        {"end-id", 1, NULL, 'i'},      {"end-epoch", 1, NULL, 'e'},    {"inited", 1, NULL, 'a'},
        {"ended", 1, NULL, 'z'},       {"batches", 1, NULL, 'b'},      {"batch-bytes", 1, NULL, 'l'},
        {"produced", 1, NULL, 'd'},    {NULL, 0, NULL, 0},
    };
    int places[MAX_PARTITIONS];
    for (int code; (code = getopt_long(count, arguments, "", known, NULL)) != -1;) {
        switch (code) {
        case 'p': o.port = atoi(optarg); break;
        case 'f': o.frames = optarg; break;
        case 'n': o.count = atoi(optarg); break;
        case 's': o.seconds = atof(optarg); break;
        case 'u': o.warmup = atof(optarg); break;
        case 'r': o.rate = atof(optarg); break;
        case 'i': o.id_at[END] = atoi(optarg); break;
        case 'e': o.epoch_at[END] = atoi(optarg); break;
        case 'a':
        case 'z': {
            enum request request = code == 'a' ? INIT : END;
            if (parse_list(optarg, places) != 3) fail("a response has places of error, producer id and epoch");
            o.error_at[request] = places[0];
            o.answered_id_at[request] = places[1];
            o.answered_epoch_at[request] = places[2];
            break;
        }
        case 'b': o.batches = parse_list(optarg, o.batch_at); break;
        case 'l': o.batch_bytes = atoi(optarg); break;
        case 'd':
            if (parse_list(optarg, o.produced_error_at) != o.batches) fail("--produced follows --batches, one for each");
            break;
        default: exit(2);
        }
    }
    if (o.port <= 0 || o.frames == NULL || o.count < 1 || o.batches < 1) fail("an option is missing");
    return o;
}

int main(int count, char **arguments) {
    static struct run run;
    run.options = parse(count, arguments);
    make_crc_table();
    make_ready();
    run.epoll = epoll_create1(EPOLL_CLOEXEC);
    run.timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (run.epoll < 0 || run.timer < 0 || epoll_ctl(run.epoll, EPOLL_CTL_ADD, run.timer, &event))
        fail("epoll: %s", strerror(errno));
    run.producers = allocate((size_t)run.options.count, sizeof *run.producers);
    load(&run);
    for (int i = 0; i < run.options.count; i++) open_connection(&run, &run.producers[i], i);
    loop(&run);
    report(&run);
    return 0;
}
