/* storefs FOLDER MOUNTPOINT [-f] [-o …]: hands a folder through as a FUSE file system.
 *
 * It stands for the export of a storage server: the driver names it so (-o fsname=store1:/export, which bindfs would
 * overwrite) and stops this process to make the store hang. Nothing is cached: each call asks this process.
 */
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static int root; /* The folder, opened before the mount: paths are taken from it. */

#define BELOW(path) ((path)[1] ? (path) + 1 : ".")
#define DONE(call) ((call) == -1 ? -errno : 0)

static void *begin(struct fuse_conn_info *conn, struct fuse_config *config)
{
    (void)conn;
    config->use_ino = 1;
    config->attr_timeout = config->entry_timeout = config->negative_timeout = 0;
    return NULL;
}

/* What the caller makes is the caller's, though root makes it. */
static int give(const char *path)
{
    struct fuse_context *caller = fuse_get_context();
    return DONE(fchownat(root, BELOW(path), caller->uid, caller->gid, AT_SYMLINK_NOFOLLOW));
}

static int do_getattr(const char *path, struct stat *st, struct fuse_file_info *file)
{
    return file ? DONE(fstat((int)file->fh, st)) : DONE(fstatat(root, BELOW(path), st, AT_SYMLINK_NOFOLLOW));
}

static int do_readdir(const char *path, void *buffer, fuse_fill_dir_t fill, off_t offset, struct fuse_file_info *file,
                      enum fuse_readdir_flags flags)
{
    (void)offset, (void)file, (void)flags;
    int fd = openat(root, BELOW(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd == -1 ? NULL : fdopendir(fd);
    if (!dir) {
        int why = errno;
        if (fd != -1)
            close(fd);
        return -why;
    }
    for (struct dirent *entry; (entry = readdir(dir));)
        if (fill(buffer, entry->d_name, NULL, 0, 0))
            break;
    closedir(dir);
    return 0;
}

static int do_open(const char *path, struct fuse_file_info *file)
{
    int fd = openat(root, BELOW(path), file->flags | O_CLOEXEC);
    file->fh = (uint64_t)fd;
    return DONE(fd);
}

static int do_create(const char *path, mode_t mode, struct fuse_file_info *file)
{
    int fd = openat(root, BELOW(path), file->flags | O_CREAT | O_CLOEXEC, mode);
    file->fh = (uint64_t)fd;
    return fd == -1 ? -errno : give(path);
}

static int do_read(const char *path, char *buffer, size_t size, off_t at, struct fuse_file_info *file)
{
    (void)path;
    ssize_t got = pread((int)file->fh, buffer, size, at);
    return got == -1 ? -errno : (int)got;
}

static int do_write(const char *path, const char *data, size_t size, off_t at, struct fuse_file_info *file)
{
    (void)path;
    ssize_t put = pwrite((int)file->fh, data, size, at);
    return put == -1 ? -errno : (int)put;
}

static int do_release(const char *path, struct fuse_file_info *file)
{
    (void)path;
    return DONE(close((int)file->fh));
}

static int do_fsync(const char *path, int data_only, struct fuse_file_info *file)
{
    (void)path;
    return DONE(data_only ? fdatasync((int)file->fh) : fsync((int)file->fh));
}

static int do_truncate(const char *path, off_t size, struct fuse_file_info *file)
{
    if (file)
        return DONE(ftruncate((int)file->fh, size));
    int fd = openat(root, BELOW(path), O_WRONLY | O_CLOEXEC);
    int said = fd == -1 ? -errno : DONE(ftruncate(fd, size));
    if (fd != -1)
        close(fd);
    return said;
}

static int do_mkdir(const char *path, mode_t mode)
{
    return mkdirat(root, BELOW(path), mode) == -1 ? -errno : give(path);
}

static int do_unlink(const char *path) { return DONE(unlinkat(root, BELOW(path), 0)); }

static int do_rmdir(const char *path) { return DONE(unlinkat(root, BELOW(path), AT_REMOVEDIR)); }

static int do_rename(const char *from, const char *to, unsigned flags)
{
    return DONE(renameat2(root, BELOW(from), root, BELOW(to), flags));
}

static int do_chmod(const char *path, mode_t mode, struct fuse_file_info *file)
{
    (void)file;
    return DONE(fchmodat(root, BELOW(path), mode, 0));
}

static int do_utimens(const char *path, const struct timespec times[2], struct fuse_file_info *file)
{
    (void)file;
    return DONE(utimensat(root, BELOW(path), times, AT_SYMLINK_NOFOLLOW));
}

static int do_statfs(const char *path, struct statvfs *st)
{
    (void)path;
    return DONE(fstatvfs(root, st));
}

static const struct fuse_operations calls = {
    .init = begin, .getattr = do_getattr, .readdir = do_readdir, .open = do_open, .create = do_create, .read = do_read,
    .write = do_write, .release = do_release, .fsync = do_fsync, .truncate = do_truncate, .mkdir = do_mkdir,
    .unlink = do_unlink, .rmdir = do_rmdir, .rename = do_rename, .chmod = do_chmod, .utimens = do_utimens,
    .statfs = do_statfs,
};

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "storefs: say storefs FOLDER MOUNTPOINT and FUSE's options\n");
        return 2;
    }
    root = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root == -1) {
        perror(argv[1]);
        return 1;
    }
    umask(0);
    argv[1] = argv[0];
    return fuse_main(argc - 1, argv + 1, &calls, NULL);
}
