/*
 * A rank that trains nothing and costs next to nothing: what a monitor sees of a training, without its work.
 *
 *   rank THREADS          (its sockets are inherited, its output is stdout)
 *
 * THREADS threads that sleep for ever; the main thread wakes 100 times a second, as a rank that waits for its
 * GPU does, and writes a line every two seconds. In C, so that the monitor shares no pages of Python with it
 * (its PSS would come out too low) and 64 of them leave the machine usable. Ends with its parent.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define TICK_NS 10000000L
#define TICKS_PER_LINE 200L

static void *sleep_for_ever(void *unused)
{
	for (;;)
		pause();
	return unused;
}

int main(int argc, char **argv)
{
	static const struct timespec tick = {0, TICK_NS};
	long threads = argc == 2 ? strtol(argv[1], NULL, 10) : 0;
	pthread_attr_t small;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 << 10);
	for (long i = 1; i < threads; i++) {
		pthread_t thread;

		if (pthread_create(&thread, &small, sleep_for_ever, NULL) != 0) {
			fprintf(stderr, "rank: no thread %ld\n", i);
			return 1;
		}
	}
	for (long n = 0;; n++) {
		nanosleep(&tick, NULL);
		if (n % TICKS_PER_LINE == 0) {
			printf("step %ld loss 2.31 tokens/s 51234\n", n / TICKS_PER_LINE);
			fflush(stdout);
		}
	}
}
