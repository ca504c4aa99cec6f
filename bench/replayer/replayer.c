/* Replays prepared Kafka request frames over many connections, and measures what a server needs for one request.
 *
 *   replayer --port P --frames FILE [options]    prints "begin" and "end" of the measured time, then a line of JSON
 *
 * The frames come as they go over the wire, size prefix included, one behind the other; nothing in here knows what they
 * mean but the place of the correlation id; other places count from the size prefix on. Each connection sends them in
 * order, over and over, with at most `window` unanswered. Every response must carry the next correlation id and a
 * sensible length; it is read to its end and dropped. Any deviation ends the program with a sentence and exit code 1.
 *
 * Closed loop (no --rate): a request leaves as soon as an answer came, its latency counts from the write. Open loop:
 * requests are due at fixed times, spread over the connections in turn, and the latency counts from the due time, so
 * that a server that stalls is charged for the requests that it kept from being sent.
 *
 * A run ends after its time, after its number of requests, or on SIGTERM; what is unanswered then is waited for.
 *
 * Left out on purpose: TLS, more than one thread, any parsing of messages. Linux only.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define PROGRAM "replayer"
#include "../harness/generator.h"

enum {
    HEAD_BYTES = 64,  /* of every response that is kept for checks, size prefix included */
    MIN_RESPONSE = 4, /* a correlation id */
    MAX_RESPONSE = 1 << 30,
    MAX_WINDOW = 4096,
    READ_BYTES = 1 << 20,
    MAX_EVENTS = 256,
};

static volatile sig_atomic_t asked_to_end;

static const double STALLED_S = 60.0; /* without any response: the server hangs */

struct frames {
    char *bytes;
    size_t size;
    size_t count;
    size_t *begin; /* count + 1 entries */
    size_t largest;
};

struct options {
    const char *host;
    int port;
    int connections;
    int window;
    double seconds;
    double warmup;
    int64_t requests; /* of each connection, 0 for no limit */
    double rate;      /* of all connections together, 0 for a closed loop */
    int stagger;      /* the first frame of connection i is i * stagger */
    int error_at;     /* place of an error code in every response, or -1 */
    int capture_from; /* place in the last prologue's response of four bytes ... */
    int capture_to;   /* ... that go to this place of every request, or -1 */
    int counter_at;   /* place of a 32-bit number in every request that begins at 1 and goes up, or -1 */
    int offset_at;    /* place of a 64-bit number in every request that begins at 0 and goes up, or -1 ... */
    int64_t offset_below; /* ... to begin again at 0 before it reaches this */
    int same_length;  /* all responses must be as long as the first */
    const char *sample;
    struct frames frames;
    struct frames prologue;
};

struct connection {
    int fd;
    int index;
    int in_flight;
    int watching_output;
    size_t next_frame;
    size_t prologue_left;
    int64_t sent_count; /* prologue apart */
    int32_t next_correlation;
    int32_t expected_correlation;
    int32_t counter;
    int64_t offset;
    char captured[4];
    char *out;
    size_t out_size, out_begin, out_end;
    char head[HEAD_BYTES];
    size_t got; /* bytes of the response that is being read, prefix included */
    size_t length;
    int64_t *sent; /* ring of `window` times */
    int sent_begin;
};

struct run {
    struct options options;
    struct connection *connections;
    int epoll, timer;
    int64_t begun, measured_from, ends;
    int64_t sent, answered, bytes_in, bytes_out;
    int64_t due; /* requests that the schedule of the open loop has released */
    int stopping;
    int ready; /* connections whose prologue is answered */
    int64_t last_response;
    int64_t largest_ns;
    double total_ns;
    struct histogram latency;
    size_t first_length;
    FILE *sample;
    char *buffer;
    int64_t ended;
};

static void write_be64(char *at, uint64_t value) {
    write_be32(at, (uint32_t)(value >> 32));
    write_be32(at + 4, (uint32_t)value);
}

/* ---- frames ---- */

static struct frames load(const char *path) {
    struct frames frames = {0};
    FILE *file = fopen(path, "rb");
    if (file == NULL) fail("cannot read %s: %s", path, strerror(errno));
    fseek(file, 0, SEEK_END);
    frames.size = (size_t)ftell(file);
    rewind(file);
    frames.bytes = allocate(frames.size, 1);
    if (fread(frames.bytes, 1, frames.size, file) != frames.size) fail("cannot read all of %s", path);
    fclose(file);
    frames.begin = allocate(frames.size / (CORRELATION_IN_REQUEST + 4) + 2, sizeof *frames.begin);
    for (size_t at = 0; at < frames.size;) {
        size_t left = frames.size - at;
        size_t length = left < SIZE_BYTES ? left : SIZE_BYTES + (size_t)read_be32(frames.bytes + at);
        if (length > left || length < CORRELATION_IN_REQUEST + 4) fail("%s: no frame at byte %zu", path, at);
        frames.begin[frames.count++] = at;
        if (length > frames.largest) frames.largest = length;
        at += length;
    }
    frames.begin[frames.count] = frames.size;
    return frames;
}

/* ---- sending ---- */

static void append_request(struct run *run, struct connection *c, int64_t counts_from) {
    const struct options *o = &run->options;
    int in_prologue = c->prologue_left > 0;
    const struct frames *frames = in_prologue ? &o->prologue : &o->frames;
    size_t which = in_prologue ? frames->count - c->prologue_left : c->next_frame;
    size_t length = frames->begin[which + 1] - frames->begin[which];
    if (c->out_end + length > c->out_size) {
        c->out_size = 2 * (c->out_end + length);
        c->out = realloc(c->out, c->out_size);
        if (c->out == NULL) fail("out of memory");
    }
    char *frame = c->out + c->out_end;
    memcpy(frame, frames->bytes + frames->begin[which], length);
    write_be32(frame + CORRELATION_IN_REQUEST, (uint32_t)c->next_correlation);
    c->next_correlation = (c->next_correlation + 1) & 0x7fffffff;
    if (!in_prologue) {
        if (o->capture_to >= 0) memcpy(frame + o->capture_to, c->captured, 4);
        if (o->counter_at >= 0) write_be32(frame + o->counter_at, (uint32_t)c->counter++);
        if (o->offset_at >= 0) write_be64(frame + o->offset_at, (uint64_t)(c->offset++ % o->offset_below));
        c->next_frame = which + 1 < frames->count ? which + 1 : 0;
        run->sent++;
        c->sent_count++;
    }
    c->out_end += length;
    run->bytes_out += (int64_t)length;
    c->sent[(c->sent_begin + c->in_flight) % o->window] = counts_from;
    c->in_flight++;
}

static void watch_output(struct run *run, struct connection *c, int wanted) {
    if (c->watching_output == wanted) return;
    struct epoll_event event = {.events = EPOLLIN | (wanted ? (uint32_t)EPOLLOUT : 0), .data.ptr = c};
    if (epoll_ctl(run->epoll, EPOLL_CTL_MOD, c->fd, &event)) fail("epoll_ctl: %s", strerror(errno));
    c->watching_output = wanted;
}

static void flush_output(struct run *run, struct connection *c) {
    while (c->out_begin < c->out_end) {
        ssize_t sent = send(c->fd, c->out + c->out_begin, c->out_end - c->out_begin, MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno == EINTR) continue;
            if (errno != EAGAIN) fail("connection %d: %s", c->index, strerror(errno));
            watch_output(run, c, 1);
            return;
        }
        c->out_begin += (size_t)sent;
    }
    c->out_begin = c->out_end = 0;
    watch_output(run, c, 0);
}

static int64_t due_time(const struct run *run, const struct connection *c) {
    int64_t number = c->sent_count * run->options.connections + c->index;
    return run->begun + (int64_t)((double)number / run->options.rate * 1e9);
}

/* Fill the window of one connection, as far as limits and schedule allow, and write once. */
static void send_more(struct run *run, struct connection *c) {
    const struct options *o = &run->options;
    int64_t at = now();
    if (c->prologue_left > 0) {
        if (c->in_flight == 0) append_request(run, c, at);
    } else {
        while (run->begun && !run->stopping && c->in_flight < o->window) {
            if (o->requests && c->sent_count >= o->requests) break;
            if (o->rate > 0) {
                int64_t due = due_time(run, c);
                if (due > at) break;
                append_request(run, c, due);
            } else {
                append_request(run, c, at);
            }
        }
    }
    flush_output(run, c);
}

/* Arm the timer for the next request that becomes due, and send those that are. */
static void follow_schedule(struct run *run) {
    const struct options *o = &run->options;
    int64_t at = now();
    int64_t released = (int64_t)((double)(at - run->begun) * o->rate / 1e9) + 1;
    for (int touched = 0; run->due < released && touched < o->connections; run->due++, touched++)
        send_more(run, &run->connections[run->due % o->connections]);
    if (run->due < released) run->due = released; /* every connection was asked once: nothing is left behind */
    int64_t next = run->begun + (int64_t)((double)run->due / o->rate * 1e9);
    struct itimerspec when = {.it_value = {.tv_sec = next / SECOND, .tv_nsec = next % SECOND}};
    if (timerfd_settime(run->timer, TFD_TIMER_ABSTIME, &when, NULL)) fail("timerfd_settime: %s", strerror(errno));
}

/* ---- receiving ---- */

static void stop(struct run *run) {
    if (!run->stopping) say("end");
    run->stopping = 1;
}

static void begin_loop(struct run *run) {
    const struct options *o = &run->options;
    run->begun = now();
    run->measured_from = run->begun + (int64_t)(o->warmup * 1e9);
    run->ends = run->measured_from + (int64_t)(o->seconds * 1e9);
    run->last_response = run->begun;
    if (o->warmup <= 0) say("begin");
    if (o->rate > 0) {
        follow_schedule(run);
        return;
    }
    for (int i = 0; i < o->connections; i++) send_more(run, &run->connections[i]);
}

static void count(struct run *run, struct connection *c, int64_t at) {
    int64_t latency = at - c->sent[c->sent_begin];
    run->answered++;
    if (at < run->measured_from || at > run->ends) return;
    if (run->latency.count == 0 && run->options.warmup > 0) say("begin");
    run->ended = at;
    run->total_ns += (double)latency;
    add(&run->latency, latency);
    if (latency > run->largest_ns) run->largest_ns = latency;
}

static void end_response(struct run *run, struct connection *c, int64_t at) {
    const struct options *o = &run->options;
    c->got = 0;
    if (c->prologue_left > 0) {
        if (--c->prologue_left == 0) {
            if (o->capture_to >= 0) memcpy(c->captured, c->head + o->capture_from, 4);
            run->ready++;
        }
    } else {
        if (o->error_at >= 0) {
            if (c->length + SIZE_BYTES < (size_t)o->error_at + 2)
                fail("connection %d: a response of %zu bytes has no error code", c->index, c->length);
            int code = (unsigned char)c->head[o->error_at] << 8 | (unsigned char)c->head[o->error_at + 1];
            if (code != 0)
                fail("connection %d: response %d has error code %d", c->index, c->expected_correlation, code);
        }
        if (run->first_length == 0) run->first_length = c->length;
        if (o->same_length && c->length != run->first_length)
            fail("connection %d: a response of %zu bytes, the first had %zu", c->index, c->length, run->first_length);
        count(run, c, at);
    }
    c->expected_correlation = (c->expected_correlation + 1) & 0x7fffffff;
    c->sent_begin = (c->sent_begin + 1) % o->window;
    c->in_flight--;
}

/* Consume what belongs to the response that is being read; returns the number of bytes taken. */
static size_t take(struct run *run, struct connection *c, const char *bytes, size_t size, int64_t at) {
    const size_t prefix = SIZE_BYTES + MIN_RESPONSE;
    size_t taken = 0;
    if (c->got < prefix) {
        taken = prefix - c->got < size ? prefix - c->got : size;
        memcpy(c->head + c->got, bytes, taken);
        c->got += taken;
        uint32_t length = c->got < SIZE_BYTES ? MIN_RESPONSE : read_be32(c->head);
        if (length < MIN_RESPONSE || length > MAX_RESPONSE)
            fail("connection %d: a response of %u bytes", c->index, length);
        if (c->got < prefix) return taken;
        int32_t correlation = (int32_t)read_be32(c->head + SIZE_BYTES);
        if (c->in_flight == 0) fail("connection %d: a response that nobody asked for", c->index);
        if (correlation != c->expected_correlation)
            fail("connection %d: response %d where %d was expected", c->index, correlation, c->expected_correlation);
        c->length = length;
        if (run->sample && c->index == 0 && c->prologue_left == 0) fwrite(c->head, 1, prefix, run->sample);
    }
    size_t left = SIZE_BYTES + c->length - c->got;
    size_t more = left < size - taken ? left : size - taken;
    if (c->got < HEAD_BYTES) {
        size_t kept = HEAD_BYTES - c->got < more ? HEAD_BYTES - c->got : more;
        memcpy(c->head + c->got, bytes + taken, kept);
    }
    if (run->sample && c->index == 0 && c->prologue_left == 0) fwrite(bytes + taken, 1, more, run->sample);
    c->got += more;
    if (c->got == SIZE_BYTES + c->length) {
        if (run->sample && c->index == 0 && c->prologue_left == 0) {
            fclose(run->sample);
            run->sample = NULL;
        }
        end_response(run, c, at);
    }
    return taken + more;
}

static void receive(struct run *run, struct connection *c) {
    ssize_t got = recv(c->fd, run->buffer, READ_BYTES, 0);
    if (got < 0) {
        if (errno == EAGAIN || errno == EINTR) return;
        fail("connection %d: %s", c->index, strerror(errno));
    }
    if (got == 0) fail("connection %d: closed by the server with %d requests unanswered", c->index, c->in_flight);
    int64_t at = now();
    run->last_response = at;
    run->bytes_in += got;
    for (size_t position = 0; position < (size_t)got;)
        position += take(run, c, run->buffer + position, (size_t)got - position, at);
    if (at >= run->ends && run->begun) stop(run);
    send_more(run, c);
}

/* ---- life of a run ---- */

static void open_connection(struct run *run, struct connection *c, int index) {
    const struct options *o = &run->options;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)o->port)};
    if (inet_pton(AF_INET, o->host, &address.sin_addr) != 1) fail("%s is no IPv4 address", o->host);
    c->index = index;
    c->counter = 1;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0) fail("socket %d: %s", index, strerror(errno));
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address))
        fail("connect to %s:%d: %s", o->host, o->port, strerror(errno));
    int on = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    c->next_frame = (size_t)index * (size_t)o->stagger % o->frames.count;
    c->prologue_left = o->prologue.count;
    c->sent = allocate((size_t)o->window, sizeof *c->sent);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(run->epoll, EPOLL_CTL_ADD, c->fd, &event)) fail("epoll_ctl: %s", strerror(errno));
    if (c->prologue_left == 0) run->ready++;
    send_more(run, c);
}

static int unanswered(const struct run *run) {
    return run->sent > run->answered;
}

static void loop(struct run *run) {
    struct epoll_event events[MAX_EVENTS];
    const struct options *o = &run->options;
    run->last_response = now();
    for (;;) {
        if (!run->begun && run->ready == o->connections) begin_loop(run);
        if (run->begun && o->requests && run->answered >= o->requests * o->connections) stop(run);
        if (run->stopping && !unanswered(run)) return;
        int count = epoll_wait(run->epoll, events, MAX_EVENTS, 1000);
        if (count < 0 && errno != EINTR) fail("epoll_wait: %s", strerror(errno));
        for (int i = 0; i < count; i++) {
            struct connection *c = events[i].data.ptr;
            if (c == NULL) {
                uint64_t expirations;
                if (read(run->timer, &expirations, sizeof expirations) > 0) follow_schedule(run);
                continue;
            }
            if (events[i].events & EPOLLOUT) flush_output(run, c);
            if (events[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP)) receive(run, c);
        }
        int64_t at = now();
        if (run->begun && (asked_to_end || at >= run->ends)) stop(run);
        if ((double)(at - run->last_response) / 1e9 > STALLED_S && (unanswered(run) || !run->begun))
            fail("no response for %.0f s", STALLED_S);
    }
}

static void report(const struct run *run) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double cpu = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                 (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    double seconds = (double)(run->ended - run->measured_from) / 1e9;
    const struct histogram *latency = &run->latency;
    uint64_t measured = latency->count;
    double mean = measured ? run->total_ns / (double)measured / 1000.0 : 0.0;
    printf("{\"requests\": %ld, \"seconds\": %.6f, \"requests_per_s\": %.1f, \"connections\": %d, \"window\": %d, "
           "\"rate\": %.1f, \"latency_us\": {\"p50\": %.1f, \"p90\": %.1f, \"p99\": %.1f, \"p999\": %.1f, "
           "\"max\": %.1f, \"mean\": %.1f}, \"all_requests\": %ld, \"bytes_in\": %ld, \"bytes_out\": %ld, "
           "\"client_cpu_s\": %.3f}\n",
           (long)measured, seconds, seconds > 0 ? (double)measured / seconds : 0.0, run->options.connections,
           run->options.window, run->options.rate, quantile_us(latency, 0.5), quantile_us(latency, 0.9),
           quantile_us(latency, 0.99), quantile_us(latency, 0.999), (double)run->largest_ns / 1000.0, mean,
           (long)run->answered, (long)run->bytes_in, (long)run->bytes_out, cpu);
}

static void check(const struct options *o) {
    if (o->frames.count == 0) fail("--frames is missing or empty");
    if (o->port <= 0 || o->port > 65535) fail("--port is missing");
    if (o->offset_below < 1) fail("--offset-below must be positive");
    if (o->connections < 1) fail("--connections must be positive");
    if (o->window < 1 || o->window > MAX_WINDOW) fail("--window must be between 1 and %d", MAX_WINDOW);
    if (o->error_at + 2 > HEAD_BYTES || o->capture_from + 4 > HEAD_BYTES) fail("a place is too far back");
    for (size_t i = 0; i < o->frames.count; i++) {
        int length = (int)(o->frames.begin[i + 1] - o->frames.begin[i]);
        if (o->capture_to + 4 > length || o->counter_at + 4 > length || o->offset_at + 8 > length)
            fail("frame %zu ends before a place that is to be patched", i);
    }
    if (o->capture_to >= 0 && o->prologue.count == 0) fail("there is no prologue to capture from");
}

static struct options parse(int count, char **arguments) {
    struct options o = {.host = "127.0.0.1", .connections = 1, .window = 1, .seconds = 10, .error_at = -1, .offset_below = INT64_MAX};
    o.capture_to = o.counter_at = o.offset_at = -1;
    static const struct option known[] = {
        {"host", 1, NULL, 'h'},       {"port", 1, NULL, 'p'},         {"connections", 1, NULL, 'c'},
        {"window", 1, NULL, 'w'},     {"seconds", 1, NULL, 's'},      {"warmup", 1, NULL, 'u'},
        {"requests", 1, NULL, 'n'},   {"rate", 1, NULL, 'r'},         {"stagger", 1, NULL, 'g'},
        {"error-at", 1, NULL, 'e'},   {"capture-from", 1, NULL, 'a'}, {"capture-to", 1, NULL, 'b'},
        {"counter-at", 1, NULL, 'k'}, {"offset-at", 1, NULL, 'o'},    {"same-length", 0, NULL, 'l'},
        {"offset-below", 1, NULL, 'm'}, {"sample", 1, NULL, 'x'},     {"frames", 1, NULL, 'f'},       {"prologue", 1, NULL, 'q'},
        {NULL, 0, NULL, 0},
    };
    for (int code; (code = getopt_long(count, arguments, "", known, NULL)) != -1;) {
        switch (code) {
        case 'h': o.host = optarg; break;
        case 'p': o.port = atoi(optarg); break;
        case 'c': o.connections = atoi(optarg); break;
        case 'w': o.window = atoi(optarg); break;
        case 's': o.seconds = atof(optarg); break;
        case 'u': o.warmup = atof(optarg); break;
        case 'n': o.requests = atoll(optarg); break;
        case 'r': o.rate = atof(optarg); break;
        case 'g': o.stagger = atoi(optarg); break;
        case 'e': o.error_at = atoi(optarg); break;
        case 'a': o.capture_from = atoi(optarg); break;
        case 'b': o.capture_to = atoi(optarg); break;
        case 'k': o.counter_at = atoi(optarg); break;
        case 'o': o.offset_at = atoi(optarg); break;
        case 'm': o.offset_below = atoll(optarg); break;
        case 'l': o.same_length = 1; break;
        case 'x': o.sample = optarg; break;
        case 'f': o.frames = load(optarg); break;
        case 'q': o.prologue = load(optarg); break;
        default: exit(2);
        }
    }
    return o;
}

static void on_signal(int number) {
    (void)number;
    asked_to_end = 1;
}

int main(int count, char **arguments) {
    static struct run run;
    run.options = parse(count, arguments);
    check(&run.options);
    make_ready();
    signal(SIGTERM, on_signal);
    run.epoll = epoll_create1(EPOLL_CLOEXEC);
    run.timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (run.epoll < 0 || run.timer < 0 || epoll_ctl(run.epoll, EPOLL_CTL_ADD, run.timer, &event))
        fail("epoll: %s", strerror(errno));
    run.buffer = allocate(READ_BYTES, 1);
    run.connections = allocate((size_t)run.options.connections, sizeof *run.connections);
    if (run.options.sample && (run.sample = fopen(run.options.sample, "wb")) == NULL)
        fail("cannot write %s: %s", run.options.sample, strerror(errno));
    for (int i = 0; i < run.options.connections; i++) open_connection(&run, &run.connections[i], i);
    loop(&run);
    report(&run);
    return 0;
}
