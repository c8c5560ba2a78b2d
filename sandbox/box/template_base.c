/*
 * Making the template `base`, from the host's /usr and a small synthetic /etc, so that the first
 * command runs without any download: base/root becomes /, and the file `usr-from-host` says that the
 * host's /usr becomes /usr.
 *
 * In base/tools/root is the layer that every template gets, with /usr/bin/sudo (sandbox/sudo). In base/tools/usr is what lies
 * over the host's /usr instead: the same sudo, and a /usr/local that everybody inside may write.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/box/sweep.h"
#include "sandbox/box/template.h"
#include "sandbox/box/tools.h"

enum { BASE_VERSION = 5, VERSION_LEN = 64 }; /* raise when what is made below changes */

enum { COPY_DEPTH_MAX = 8 };

/* ------------------------------------------------------------------ the content */

static const struct {
    const char *path;
    mode_t mode;
    uid_t owner;
} base_dirs[] = {
    { "etc", 0755, 0 },          { "etc/sudoers.d", 0755, 0 }, { "proc", 0555, 0 },
    { "dev", 0755, 0 },          { "sys", 0555, 0 },           { "usr", 0755, 0 },
    { "root", 0700, 0 },         { "tmp", 01777, 0 },          { "run", 0755, 0 },
    { "run/lock", 01777, 0 },    { "mnt", 0755, 0 },           { "opt", 0755, 0 },
    { "srv", 0755, 0 },          { "home", 0755, 0 },          { "home/user", 0755, 1000 },
    { "workspace", 0777, 1000 }, { "var", 0755, 0 },           { "var/tmp", 01777, 0 },
    { "var/log", 0755, 0 },      { "var/cache", 0755, 0 },     { "var/lib", 0755, 0 },
    { "var/spool", 0755, 0 },    { "code", 0777, 0 },
};

static const struct {
    const char *path, *target;
} base_links[] = {
    { "bin", "usr/bin" },
    { "sbin", "usr/sbin" },
    { "lib", "usr/lib" },
    { "lib32", "usr/lib32" },
    { "lib64", "usr/lib64" },
    { "libx32", "usr/libx32" },
    { "var/run", "/run" },
    { "var/lock", "/run/lock" },
    { "etc/mtab", "../proc/self/mounts" },
    { "etc/os-release", "../usr/lib/os-release" },
};

static const struct {
    const char *path, *text;
} base_files[] = {
    { "etc/passwd", "root:x:0:0:root:/root:/bin/bash\n"
                    "daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
                    "bin:x:2:2:bin:/bin:/usr/sbin/nologin\n"
                    "sys:x:3:3:sys:/dev:/usr/sbin/nologin\n"
                    "mail:x:8:8:mail:/var/mail:/usr/sbin/nologin\n"
                    "www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin\n"
                    "user:x:1000:1000:user:/home/user:/bin/bash\n"
                    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n" },
    { "etc/group", "root:x:0:\ndaemon:x:1:\nbin:x:2:\nsys:x:3:\nadm:x:4:\ntty:x:5:\ndisk:x:6:\n"
                   "mail:x:8:\nsudo:x:27:user\nwww-data:x:33:\nutmp:x:43:\nstaff:x:50:\n"
                   "users:x:100:\nuser:x:1000:\nnogroup:x:65534:\n" },
    { "etc/hosts", "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n" },
    { "etc/hostname", "cove\n" },
    { "etc/host.conf", "multi on\n" },
    { "etc/resolv.conf", "" },
    { "etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"
                           "services: files\nprotocols: files\n" },
    { "etc/shells", "/bin/sh\n/bin/bash\n/usr/bin/bash\n" },
    { "etc/profile", "if [ \"$PS1\" ] && [ -f ~/.bashrc ]; then . ~/.bashrc; fi\n" },
    /* For users who install the real sudo inside. */
    { "etc/sudoers.d/cove", "user ALL=(ALL:ALL) NOPASSWD: ALL\n" },
    { "etc/gitconfig", "[safe]\n\tdirectory = *\n" },
    /* The host's Python refuses pip because apt manages it (PEP 668). In a sandbox pip may install. */
    { "etc/pip.conf", "[global]\nbreak-system-packages = true\n" },
};

/* Entries of the host's /etc that programs in /usr need. Only world-readable files are copied. */
static const char *const base_copies[] = {
    "alternatives",
    "ssl/certs",
    "ssl/openssl.cnf",
    "ca-certificates.conf",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "services",
    "protocols",
    "mime.types",
    "localtime",
    "timezone",
    "debian_version",
    "magic",
    "terminfo",
    "inputrc",
    "perl",
    "python3",
    "python3.11",
    "java-17-openjdk",
    "fonts",
    "xml",
    "sgml",
    "npmrc",
    "wgetrc",
};

/* ------------------------------------------------------------------ making the template */

static int copy_bytes(int from, int to)
{
    struct stat st;
    off_t left;

    if (fstat(from, &st) < 0)
        return -1;
    for (left = st.st_size; left > 0;) {
        ssize_t n = sendfile(to, from, NULL, (size_t)left);

        if (n <= 0)
            return n < 0 ? -1 : 0;
        left -= n;
    }
    return 0;
}

static int copy_file(int from_dir, int to_dir, const char *name, mode_t mode)
{
    AUTO_CLOSE int from = openat(from_dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    AUTO_CLOSE int to = openat(to_dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode & 0755);

    return from < 0 || to < 0 ? -1 : copy_bytes(from, to);
}

static int copy_link(int from_dir, int to_dir, const char *name)
{
    char target[4096];
    ssize_t n = readlinkat(from_dir, name, target, sizeof(target) - 1);

    if (n < 0)
        return -1;
    target[n] = '\0';
    return symlinkat(target, to_dir, name);
}

static int copy_entry(int from_dir, int to_dir, const char *name, unsigned depth);

static int copy_dir(int from_dir, int to_dir, const char *name, unsigned depth)
{
    AUTO_CLOSE int to = -1;
    int from = openat(from_dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW), rc = 0;
    DIR *dir = from < 0 ? NULL : fdopendir(from);
    struct dirent *d;

    if (!dir) {
        cove_close(from);
        return -1;
    }
    if (mkdirat(to_dir, name, 0755) == 0 || errno == EEXIST)
        to = openat(to_dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (to >= 0 && rc == 0 && (d = readdir(dir)))
        if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
            rc = copy_entry(dirfd(dir), to, d->d_name, depth + 1);
    closedir(dir);
    return to < 0 ? -1 : rc;
}

/* Copies world-readable files, readable directories and links, and nothing else. */
static int copy_entry(int from_dir, int to_dir, const char *name, unsigned depth)
{
    struct stat st;

    if (depth > COPY_DEPTH_MAX || fstatat(from_dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    if (S_ISLNK(st.st_mode))
        return copy_link(from_dir, to_dir, name);
    if (S_ISDIR(st.st_mode) && (st.st_mode & S_IXOTH))
        return copy_dir(from_dir, to_dir, name, depth);
    if (S_ISREG(st.st_mode) && (st.st_mode & S_IROTH))
        return copy_file(from_dir, to_dir, name, st.st_mode);
    return 0;
}

/* "ssl/certs" goes to etc/ssl/certs: the parent is made, the last part copied. */
static int copy_from_etc(int root, const char *path, struct cove_err *e)
{
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    char from_path[128] = "/etc/", to_path[128] = "etc/";
    AUTO_CLOSE int from = -1, to = -1;

    strncat(from_path, path, (size_t)(name - path));
    strncat(to_path, path, (size_t)(name - path));
    from = open(from_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (from < 0)
        return 0; /* the host has no such folder */
    mkdirat(root, to_path, 0755);
    to = openat(root, to_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (to < 0 || copy_entry(from, to, name, 0) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "copying /etc/%s", path);
    return 0;
}

static int put_text(int dir, const char *name, const char *text, struct cove_err *e)
{
    AUTO_CLOSE int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        return cove_fail_errno(e, COVE_INTERNAL, "template file %s", name);
    return 0;
}

static int fill_base(int root, struct cove_err *e)
{
    for (size_t i = 0; i < ARRAY_SIZE(base_dirs); i++)
        if (mkdirat(root, base_dirs[i].path, 0755) < 0 ||
            fchmodat(root, base_dirs[i].path, base_dirs[i].mode, 0) < 0 ||
            fchownat(root, base_dirs[i].path, base_dirs[i].owner, base_dirs[i].owner, 0) < 0)
            return cove_fail_errno(e, COVE_INTERNAL, "template folder %s", base_dirs[i].path);
    for (size_t i = 0; i < ARRAY_SIZE(base_links); i++)
        if (symlinkat(base_links[i].target, root, base_links[i].path) < 0)
            return cove_fail_errno(e, COVE_INTERNAL, "template link %s", base_links[i].path);
    for (size_t i = 0; i < ARRAY_SIZE(base_files); i++)
        if (put_text(root, base_files[i].path, base_files[i].text, e) < 0)
            return -1;
    for (size_t i = 0; i < ARRAY_SIZE(base_copies); i++)
        if (copy_from_etc(root, base_copies[i], e) < 0)
            return -1;
    return 0;
}

/* The version of the template's content, and size and time of the program that `sudo` is a copy of. */
static int version_of(int sudo_exe, char ret[VERSION_LEN], struct cove_err *e)
{
    struct stat st;

    if (fstat(sudo_exe, &st) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "cove-sudo");
    snprintf(ret, VERSION_LEN, "%d %lld %lld.%09ld\n", BASE_VERSION, (long long)st.st_size,
             (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    return 0;
}

static bool base_is_current(int templates, const char *version)
{
    char found[VERSION_LEN];

    return read_file_at(templates, "base/version", found, sizeof(found)) > 0 &&
           strcmp(found, version) == 0;
}

static int make_dir_at(int parent, const char *name, mode_t mode, int *ret, struct cove_err *e)
{
    if (mkdirat(parent, name, mode) < 0 && errno != EEXIST)
        return cove_fail_errno(e, COVE_INTERNAL, "mkdir %s", name);
    *ret = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *ret < 0 ? cove_fail_errno(e, COVE_INTERNAL, "%s", name) : 0;
}

/*
 * The file is set-uid. In a sandbox that means the sandbox's root; on the host it would mean the
 * host's, so nobody but root can search the folder that the layer lies in. (A sandbox gets a mount
 * of the layer itself.)
 */
static int make_tools(int base, int sudo_exe, struct cove_err *e)
{
    static const char *const dirs[] = {
        "tools", "tools/root", "tools/root/usr", "tools/root/usr/bin", "tools/usr", "tools/usr/bin",
    };
    AUTO_CLOSE int file = -1;

    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
        if (mkdirat(base, dirs[i], i == 0 ? 0700 : 0755) < 0)
            return cove_fail_errno(e, COVE_INTERNAL, "folder %s", dirs[i]);
    file = openat(base, "tools/root/usr/bin/sudo", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
    if (file < 0 || copy_bytes(sudo_exe, file) < 0 || fchmod(file, 04755) < 0 ||
        linkat(base, "tools/root/usr/bin/sudo", base, "tools/usr/bin/sudo", 0) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "copying cove-sudo");
    return 0;
}

/* ------------------------------------------------------------------ /usr/local */

/* Makes a directory that everybody inside may write, unless the host has something else of this name: then it stays as it is. */
static int make_open_dir(int base, const char *path, struct cove_err *e)
{
    char host[128], made[128];
    struct stat st;

    snprintf(host, sizeof(host), "/usr/%s", path);
    snprintf(made, sizeof(made), "tools/usr/%s", path);
    if (lstat(host, &st) == 0 && !S_ISDIR(st.st_mode))
        return 0;
    if (mkdirat(base, made, 0755) < 0 && errno == ENOENT)
        return 0; /* the directory above it stays as it is */
    if (fchmodat(base, made, 0777, 0) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "folder %s", made);
    return 0;
}

/* Debian's Python looks for packages in a directory of its version. */
static int make_python_dirs(int base, struct cove_err *e)
{
    DIR *dir = opendir("/usr/lib");
    struct dirent *d;
    char path[64];
    int rc = 0;

    while (dir && rc == 0 && (d = readdir(dir))) {
        if (strncmp(d->d_name, "python3.", 8) != 0 || strlen(d->d_name) > 12)
            continue;
        snprintf(path, sizeof(path), "local/lib/%.12s", d->d_name);
        rc = make_open_dir(base, path, e);
        snprintf(path, sizeof(path), "local/lib/%.12s/dist-packages", d->d_name);
        rc = rc < 0 ? -1 : make_open_dir(base, path, e);
    }
    if (dir)
        closedir(dir);
    return rc;
}

/* Programs that install things for everybody (pip, npm --global, make install) put them below /usr/local. Inside, `user` may do
 * that without sudo. */
static int make_usr_local(int base, struct cove_err *e)
{
    static const char *const dirs[] = {
        "local",         "local/bin",   "local/etc",
        "local/include", "local/lib",   "local/lib/node_modules",
        "local/sbin",    "local/share", "local/src",
    };

    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
        if (make_open_dir(base, dirs[i], e) < 0)
            return -1;
    return make_python_dirs(base, e);
}

/* Sandboxes of an earlier keeper may use the old template: it is renamed, and swept at a later start. */
static int put_aside(int templates, struct cove_err *e)
{
    char id[COVE_ID_LEN + 1], aside[64];

    text_new_id(id);
    snprintf(aside, sizeof(aside), ".old-%s", id);
    if (renameat(templates, "base", templates, aside) < 0 && errno != ENOENT)
        return cove_fail_errno(e, COVE_INTERNAL, "old template 'base'");
    return 0;
}

void template_sweep_old(int state_dir_fd)
{
    int fd = openat(state_dir_fd, "templates", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *d;

    while (dir && (d = readdir(dir)))
        if (strncmp(d->d_name, ".old-", 5) == 0)
            sweep_tree(dirfd(dir), d->d_name, NULL);
    if (dir)
        closedir(dir);
}

/* Made whole as base.new, then renamed: a template is never seen half-made. */
int template_make_base(int state_dir_fd, int sudo_exe, struct cove_err *e)
{
    AUTO_CLOSE int templates = -1, fresh = -1, root = -1;
    char version[VERSION_LEN];

    if (make_dir_at(state_dir_fd, "templates", 0755, &templates, e) < 0 ||
        version_of(sudo_exe, version, e) < 0)
        return -1;
    if (base_is_current(templates, version))
        return 0;
    if (sweep_tree(templates, "base.new", e) < 0 || put_aside(templates, e) < 0)
        return -1;
    if (make_dir_at(templates, "base.new", 0755, &fresh, e) < 0 ||
        make_dir_at(fresh, "root", 0755, &root, e) < 0 || fill_base(root, e) < 0 ||
        make_tools(fresh, sudo_exe, e) < 0 || make_usr_local(fresh, e) < 0 ||
        put_text(fresh, "usr-from-host", "", e) < 0 || put_text(fresh, "version", version, e) < 0)
        return cove_context(e, "template 'base'");
    if (renameat(templates, "base.new", templates, "base") < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "template 'base'");
    return 0;
}
