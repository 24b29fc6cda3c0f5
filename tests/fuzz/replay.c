/* Replays a corpus folder through a fuzz target in ordinary builds. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        return -1;
    }
    static uint8_t buf[1 << 20];
    size_t n = fread(buf, 1, sizeof buf, f);
    fclose(f);
    /* An exact-size heap copy, so that a read past the end is seen by ASan. */
    uint8_t *copy = malloc(n ? n : 1);
    if (!copy) {
        return -1;
    }
    for (size_t i = 0; i < n; i++) {
        copy[i] = buf[i];
    }
    LLVMFuzzerTestOneInput(copy, n);
    free(copy);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s CORPUS-DIR\n", argv[0]);
        return 2;
    }
    DIR *dir = opendir(argv[1]);
    if (!dir) {
        perror(argv[1]);
        return 1;
    }
    int count = 0;
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        char path[4096];
        if (e->d_name[0] == '.') {
            continue;
        }
        snprintf(path, sizeof path, "%s/%s", argv[1], e->d_name);
        if (replay_file(path) != 0) {
            perror(path);
            return 1;
        }
        count++;
    }
    closedir(dir);
    printf("%d inputs replayed\n", count);
    return count > 0 ? 0 : 1;
}
