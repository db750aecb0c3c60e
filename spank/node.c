#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "node.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STATE_DIR "/run/astraeus"
#define START_MONITOR "/usr/lib/astraeus/start-monitor"
#define RESERVE_UNIT 256u
#define OPEN_DIR (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* Only tests may look elsewhere: a user's variable must never direct what root writes. */
static const char *test_path(const char *variable, const char *path)
{
#ifdef ASTRAEUS_TESTING
	const char *other = getenv(variable);

	return other ? other : path;
#else
	(void)variable;
	return path;
#endif
}

const char *node_state_dir(void)
{
	return test_path("ASTRAEUS_STATE_DIR", STATE_DIR);
}

/* The mode is set after, so that no umask bends it: a user has to come through to the stop file. */
static void make_directory(const char *path, mode_t mode)
{
	if (mkdir(path, 0700) == 0)
		chmod(path, mode);
}

static int open_jobs(bool make)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/jobs", node_state_dir());
	if (make) {
		make_directory(node_state_dir(), 0755);
		make_directory(path, 0711);
	}
	return open(path, OPEN_DIR);
}

/* mkdirat() and openat() of job's directory. */
static int open_job(uint32_t job, bool make)
{
	char name[16];
	int jobs = open_jobs(make), fd;
	bool made;

	if (jobs < 0)
		return -1;
	snprintf(name, sizeof(name), "%u", job);
	made = make && mkdirat(jobs, name, 0700) == 0;
	fd = openat(jobs, name, OPEN_DIR);
	close(jobs);
	if (fd >= 0 && made)
		fchmod(fd, 0711);
	return fd;
}

int node_open_job(uint32_t job)
{
	return open_job(job, false);
}

int node_make_job(uint32_t job)
{
	return open_job(job, true);
}

ssize_t node_read(int job_dir, const char *name, char *text, size_t size)
{
	int fd = openat(job_dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	ssize_t got;

	text[0] = '\0';
	if (fd < 0)
		return -1;
	got = read(fd, text, size - 1);
	close(fd);
	text[got > 0 ? got : 0] = '\0';
	return got;
}

bool node_write_once(int job_dir, const char *name, const char *text)
{
	char temporary[64];
	size_t length = strlen(text);
	bool done = false;
	int fd;

	snprintf(temporary, sizeof(temporary), ".%s.%d", name, (int)getpid());
	fd = openat(job_dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return false;
	/* A link fails where the name is taken: the first one wins, and nobody ever reads half a file. */
	if (write(fd, text, length) == (ssize_t)length)
		done = linkat(job_dir, temporary, job_dir, name, 0) == 0;
	close(fd);
	unlinkat(job_dir, temporary, 0);
	return done;
}

int node_open_step(int job_dir, const char *name)
{
	int steps, fd;

	if (mkdirat(job_dir, "steps", 0700) != 0 && errno != EEXIST)
		return -1;
	steps = openat(job_dir, "steps", OPEN_DIR);
	if (steps < 0)
		return -1;
	fd = openat(steps, name, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	close(steps);
	return fd;
}

bool node_reserve(int job_dir, size_t bytes, size_t limit)
{
	size_t units = (bytes + RESERVE_UNIT - 1) / RESERVE_UNIT;
	int fd = openat(job_dir, "used", O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	static const char marks[4096];
	struct stat st;
	bool room = false;

	if (fd < 0)
		return false;
	if (fstat(fd, &st) == 0)
		room = ((uint64_t)st.st_size + units) * RESERVE_UNIT <= limit;
	for (size_t left = room ? units : 0; left > 0;) {
		ssize_t wrote = write(fd, marks, left < sizeof(marks) ? left : sizeof(marks));

		if (wrote <= 0)
			break;
		left -= (size_t)wrote;
	}
	close(fd);
	return room;
}

static bool same_address(const struct sockaddr *one, const struct sockaddr *other)
{
	if (one == NULL || one->sa_family != other->sa_family)
		return false;
	if (one->sa_family == AF_INET)
		return memcmp(&((const struct sockaddr_in *)one)->sin_addr,
			      &((const struct sockaddr_in *)other)->sin_addr, sizeof(struct in_addr)) == 0;
	return one->sa_family == AF_INET6 &&
	       memcmp(&((const struct sockaddr_in6 *)one)->sin6_addr,
		      &((const struct sockaddr_in6 *)other)->sin6_addr, sizeof(struct in6_addr)) == 0;
}

bool node_has_address(const char *address)
{
	struct addrinfo numeric = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM}, *wanted;
	struct ifaddrs *all = NULL;
	bool found = false;

	if (getaddrinfo(address, NULL, &numeric, &wanted) != 0)
		return false;
	if (getifaddrs(&all) == 0) {
		for (struct ifaddrs *one = all; one && !found; one = one->ifa_next)
			found = same_address(one->ifa_addr, wanted->ai_addr);
		freeifaddrs(all);
	}
	freeaddrinfo(wanted);
	return found;
}

void node_wake(void)
{
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/wake", node_state_dir());
	/* Read and write: a FIFO that nobody reads then gives no SIGPIPE, and a full one no wait. */
	fd = open(path, O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return;
	if (write(fd, "w", 1) < 0)
		errno = 0;
	close(fd);
}

static void close_all(void)
{
	int limit = (int)sysconf(_SC_OPEN_MAX);

	if (syscall(SYS_close_range, 0u, ~0u, 0u) == 0)
		return;
	/* Before Linux 5.9. */
	for (int fd = 0; fd < (limit > 0 && limit < 65536 ? limit : 65536); fd++)
		close(fd);
}

/* In the grandchild: only calls that are safe after a fork of a process with threads. */
__attribute__((noreturn))
static void become_monitor(const char *path)
{
	static char *const environment[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", NULL};
	char *const argv[] = {(char *)path, NULL};

	setsid();
	close_all();
	/* 0, 1 and 2, in this order: an open descriptor of the step would hold the step up. */
	if (open("/dev/null", O_RDWR) == 0 && dup(0) == 1 && dup(0) == 2)
		execve(path, argv, environment);
	_exit(127);
}

void node_start_monitor(void)
{
	const char *path = test_path("ASTRAEUS_START_MONITOR", START_MONITOR);
	pid_t child;

	if (access(path, X_OK) != 0)
		return;
	child = fork();
	if (child == 0) {
		if (fork() == 0)
			become_monitor(path);
		_exit(0);
	}
	while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
}

void node_now(char *out, size_t size)
{
	struct timespec now = {0, 0};

	clock_gettime(CLOCK_BOOTTIME, &now);
	snprintf(out, size, "%lld.%02ld", (long long)now.tv_sec, now.tv_nsec / 10000000);
}

uint64_t node_start_time(pid_t pid)
{
	char path[64], text[1024];
	const char *cursor;
	ssize_t got;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	got = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (got <= 0)
		return 0;
	text[got] = '\0';
	/* The command's name, field 2, may hold blanks and parentheses: count from the last one. */
	cursor = strrchr(text, ')');
	for (int field = 2; cursor && field < 22; field++)
		cursor = strchr(cursor + 1, ' ');
	return cursor ? strtoull(cursor, NULL, 10) : 0;
}
