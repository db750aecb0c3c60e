#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "jobfile.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "node.h"
#include "options.h"

/* The kept file, its lines ended by NULs. */
static char kept[JOB_TEXT_SIZE];
static size_t kept_size;

bool jobfile_read(int job_dir)
{
	ssize_t got = node_read(job_dir, "job", kept, sizeof(kept));

	kept_size = got > 0 ? (size_t)got : 0;
	for (size_t i = 0; i < kept_size; i++)
		if (kept[i] == '\n')
			kept[i] = '\0';
	return kept_size > 0;
}

const char *jobfile_value(const char *key)
{
	size_t length = strlen(key);

	for (size_t at = 0; at < kept_size; at += strlen(kept + at) + 1)
		if (strncmp(kept + at, key, length) == 0 && kept[at + length] == '=')
			return kept + at + length + 1;
	return NULL;
}

struct page {
	char text[4096];
	size_t used;
};

/* A value of the user's own making ends at its first control byte; one that does not fit is left out. */
static void put(struct page *page, const char *key, const char *value)
{
	size_t length;

	for (length = 0; (unsigned char)value[length] >= 0x20 && value[length] != 0x7f; length++)
		;
	if (length == 0 || page->used + strlen(key) + length + 3 > sizeof(page->text))
		return;
	page->used += (size_t)sprintf(page->text + page->used, "%s=%.*s\n", key, (int)length, value);
}

static void put_number(struct page *page, const char *key, unsigned long long value)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", value);
	put(page, key, text);
}

static void put_variable(struct page *page, spank_t spank, const char *key, const char *variable)
{
	char text[1024];

	if (spank_getenv(spank, variable, text, sizeof(text)) == ESPANK_SUCCESS)
		put(page, key, text);
}

/* Random bytes as 32 hexadecimal digits: with the boot id, the name of this attempt. */
static void put_nonce(struct page *page)
{
	unsigned char random[16];
	char text[2 * sizeof(random) + 1];

	if (getrandom(random, sizeof(random), GRND_NONBLOCK) != (ssize_t)sizeof(random))
		return;
	for (size_t i = 0; i < sizeof(random); i++)
		sprintf(text + 2 * i, "%02x", random[i]);
	put(page, "nonce", text);
}

static void put_boot(struct page *page)
{
	char text[64];

	if (node_read(AT_FDCWD, "/proc/sys/kernel/random/boot_id", text, sizeof(text)) > 0)
		put(page, "boot", text);
}

static void put_node(struct page *page)
{
	const char *name = getenv("SLURMD_NODENAME");
	char host[256];

	if (name == NULL && gethostname(host, sizeof(host)) == 0) {
		host[strcspn(host, ".")] = '\0';
		name = host;
	}
	if (name)
		put(page, "node", name);
}

/*
 * The options are not in here: they are the step's, and the job asked for nothing. User, account and
 * partition come from the job's environment, so they are words to show; only uid and gid decide anything.
 */
void jobfile_announce(spank_t spank, int job_dir, uint32_t job)
{
	struct page page = {.used = 0};
	uint32_t restarts = 0;
	uid_t uid;
	gid_t gid;
	char now[32];

	put(&page, "v", "1");
	put(&page, "version", ASTRAEUS_VERSION);
	put_number(&page, "job", job);
	put_nonce(&page);
	put_boot(&page);
	node_now(now, sizeof(now));
	put(&page, "at", now);
	put_node(&page);
	if (spank_get_item(spank, S_JOB_UID, &uid) == ESPANK_SUCCESS)
		put_number(&page, "uid", uid);
	if (spank_get_item(spank, S_JOB_GID, &gid) == ESPANK_SUCCESS)
		put_number(&page, "gid", gid);
	/* Some releases say 0 in every attempt: then nothing is said. */
	if (spank_get_item(spank, S_SLURM_RESTART_COUNT, &restarts) == ESPANK_SUCCESS && restarts > 0)
		put_number(&page, "restarts", restarts);
	put(&page, "by", "plugin");
	put(&page, "asked", "0");
	put_variable(&page, spank, "cluster", "SLURM_CLUSTER_NAME");
	put_variable(&page, spank, "user", "SLURM_JOB_USER");
	put_variable(&page, spank, "account", "SLURM_JOB_ACCOUNT");
	put_variable(&page, spank, "partition", "SLURM_JOB_PARTITION");
	put_variable(&page, spank, "nodes", "SLURM_JOB_NUM_NODES");
	put_variable(&page, spank, "leader", "SLURM_HET_JOB_ID");
	put_variable(&page, spank, "nodelist", "SLURM_JOB_NODELIST");
	node_write_once(job_dir, "job", page.text);
}
