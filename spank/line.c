/* Lines of a step file. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "node.h"

void line_start(struct line *line, const char *word)
{
	line->used = (size_t)snprintf(line->text, sizeof(line->text), "%s", word);
}

bool line_add(struct line *line, const char *key, const char *value)
{
	char pair[LINE_SIZE];
	size_t used = (size_t)snprintf(pair, sizeof(pair), " %s=", key);

	for (; *value; value++) {
		unsigned char byte = (unsigned char)*value;

		if (used + 4 > sizeof(pair))
			return false;
		if (byte <= 0x20 || byte >= 0x7f)
			used += (size_t)snprintf(pair + used, sizeof(pair) - used, "%%%02X", byte);
		else
			pair[used++] = (char)byte;
	}
	/* One byte stays free for the newline, one more keeps the line under its size. */
	if (line->used + used + 2 > sizeof(line->text))
		return false;
	memcpy(line->text + line->used, pair, used);
	line->used += used;
	return true;
}

bool line_add_number(struct line *line, const char *key, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	return line_add(line, key, text);
}

bool line_add_now(struct line *line)
{
	char text[32];

	node_now(text, sizeof(text));
	return line_add(line, "at", text);
}

bool line_write(int fd, struct line *line)
{
	line->text[line->used++] = '\n';
	return write(fd, line->text, line->used) == (ssize_t)line->used;
}
