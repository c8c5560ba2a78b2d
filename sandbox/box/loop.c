/* Loop devices. Each is made when a disk needs it and removed when the disk is removed. */
#include "sandbox/box/loop.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "cove/mem.h"

enum {
    ATTACH_TRIES = 64,
    REMOVE_TRIES = 200,
    REMOVE_PAUSE_MS = 10,
    LOOP_FIRST_OWN = 8, /* lower ones are made by the kernel at boot, and belong to the host */
};

void loop_path(int number, char out[LOOP_PATH_MAX])
{
    snprintf(out, LOOP_PATH_MAX, "/dev/loop%d", number);
}

/* Another program may take a free device before we attach to it: then the next one is tried. */
int loop_attach(int image, int *ret_number, int *ret_fd, struct cove_err *e)
{
    /* Direct I/O, because the file system above caches already. Switching it on later would stop the
     * device's queue for 20 ms. */
    struct loop_config config = { .fd = (uint32_t)image,
                                  .info.lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO };
    AUTO_CLOSE int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

    for (int tries = 0; control >= 0 && tries < ATTACH_TRIES; tries++) {
        int number = ioctl(control, LOOP_CTL_GET_FREE), loop;
        char path[LOOP_PATH_MAX];

        if (number < 0)
            break;
        loop_path(number, path);
        loop = open(path, O_RDWR | O_CLOEXEC);
        if (loop >= 0 && ioctl(loop, LOOP_CONFIGURE, &config) == 0) {
            *ret_number = number;
            *ret_fd = loop;
            return 0;
        }
        cove_close(loop);
        if (errno != EBUSY && errno != ENOENT && errno != ENXIO) /* another program was faster */
            break;
    }
    return cove_fail_errno(e, COVE_UNSUPPORTED, "loop device for a disk");
}

static bool stands_for(int loop, const struct stat *image)
{
    struct loop_info64 info;

    return ioctl(loop, LOOP_GET_STATUS64, &info) == 0 && info.lo_inode == image->st_ino &&
           info.lo_device == image->st_dev;
}

int loop_find(int image, int *ret_number, int *ret_fd)
{
    struct dirent *d;
    struct stat st;
    DIR *dir = opendir("/sys/block");
    int rc = -1;

    while (dir && rc < 0 && fstat(image, &st) == 0 && (d = readdir(dir))) {
        char path[LOOP_PATH_MAX];
        AUTO_CLOSE int loop = -1;
        int number;

        if (sscanf(d->d_name, "loop%d", &number) != 1)
            continue;
        loop_path(number, path);
        loop = open(path, O_RDWR | O_CLOEXEC);
        if (loop < 0 || !stands_for(loop, &st))
            continue;
        *ret_number = number;
        *ret_fd = take_fd(&loop);
        rc = 0;
    }
    if (dir)
        closedir(dir);
    return rc;
}

void loop_remove(int number)
{
    AUTO_CLOSE int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

    if (number < LOOP_FIRST_OWN)
        return;
    for (int tries = 0; control >= 0 && tries < REMOVE_TRIES; tries++) {
        if (ioctl(control, LOOP_CTL_REMOVE, number) >= 0 || errno != EBUSY)
            return;
        poll(NULL, 0, REMOVE_PAUSE_MS);
    }
}
