/* nvidia-cuda-mps-control for tests: its commands over its socket, a server process, clients. No GPU.
 *
 *   -f ...        the daemon, in the foreground
 *   (nothing)     the front end: commands on stdin, answers on stdout
 *   --client      a CUDA program: stays connected; exits with 3 when its daemon or server is gone
 *   --server      what the daemon starts as its server
 *
 * Beside the binary: a file `fail` keeps the daemon from starting, `mute` keeps it from answering, `fault` puts its server into that state; it writes a line
 * into `starts` whenever it is started. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST 64
static const char *pipes;
static char self[512];
static int clients[MOST], clients_n;
static pid_t client_pids[MOST], server;
static char threads[32] = "100.0", limit[32] = "";

static int beside(const char *name) {
    char path[600], folder[512];
    strcpy(folder, self);
    snprintf(path, sizeof path, "%s/%s", dirname(folder), name);
    return access(path, F_OK) == 0;
}

static int connected(void) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(to.sun_path, sizeof to.sun_path, "%s/control", pipes);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0) return fd;
    close(fd);
    return -1;
}

static void note_end(pid_t pid, int status) {
    const char *logs = getenv("CUDA_MPS_LOG_DIRECTORY");
    char path[600];
    snprintf(path, sizeof path, "%s/control.log", logs ? logs : "/tmp");
    FILE *log = fopen(path, "a");
    if (!log) return;
    fprintf(log, "[2026-11-23 00:00:00.000 Control %d] Server %d exited with status %d\n", getpid(), pid,
            WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    fclose(log);
}

static void start_server(void) {
    if (server) return;
    server = fork();
    if (server == 0) {
        setsid();  /* it does not end with its daemon */
        execl(self, "nvidia-cuda-mps-server", "--server", NULL);
        _exit(1);
    }
}

static void drop_clients(void) {
    while (clients_n) close(clients[--clients_n]);
}

static void end_server(void) {
    if (!server) return;
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    server = 0;
}

static int quitting = -1;  /* seconds that clients still have */

static void obey(char *command, char *answer, size_t room) {
    char *word = strtok(command, " \n"), *argument = strtok(NULL, " \n"), *value = strtok(NULL, " \n");
    *answer = 0;
    if (!word) return;
    if (!strcmp(word, "get_server_list")) {
        if (server) snprintf(answer, room, "%d\n", server);
    } else if (!strcmp(word, "get_server_status")) {
        snprintf(answer, room, "%s\n", beside("fault") ? "FAULT" : "ACTIVE");
    } else if (!strcmp(word, "get_client_list")) {
        for (int i = 0; i < clients_n; i++)
            snprintf(answer + strlen(answer), room - strlen(answer), "%d\n", client_pids[i]);
    } else if (!strcmp(word, "start_server")) {
        start_server();
    } else if (!strcmp(word, "set_default_active_thread_percentage") && argument) {
        snprintf(threads, sizeof threads, "%s.0", argument);
    } else if (!strcmp(word, "get_default_active_thread_percentage")) {
        snprintf(answer, room, "%s\n", threads);
    } else if (!strcmp(word, "set_default_device_pinned_mem_limit") && value) {
        snprintf(limit, sizeof limit, "%s", value);
    } else if (!strcmp(word, "get_default_device_pinned_mem_limit")) {
        snprintf(answer, room, "%s\n", limit);
    } else if (!strcmp(word, "quit")) {
        quitting = argument && !strcmp(argument, "-t") && value ? atoi(value) : 1 << 20;
    } else {
        snprintf(answer, room, "Unknown command: %s\n", word);
    }
}

static int serve(void) {
    char path[600], text[4096], answer[4096];
    snprintf(path, sizeof path, "%s/control_lock", pipes);
    int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB)) {
        fprintf(stderr, "An instance of this daemon is already running\n");
        return 1;
    }
    strcpy(path, self);
    snprintf(text, sizeof text, "%s/starts", dirname(path));
    FILE *starts = fopen(text, "a");
    if (starts) fprintf(starts, "%d\n", getpid()), fclose(starts);
    if (beside("fail")) {
        fprintf(stderr, "first line\nCUDA is not to be had\n");
        return 1;
    }
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s/control", pipes);
    unlink(at.sun_path);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 16)) return perror("control"), 1;
    snprintf(path, sizeof path, "%s/nvidia-cuda-mps-control.pid", pipes);
    FILE *pid = fopen(path, "w");
    fprintf(pid, "%d", getpid());
    fclose(pid);
    int asking = -1;
    for (;;) {
        struct pollfd watched[MOST + 1] = {{.fd = listener, .events = POLLIN}};
        for (int i = 0; i < clients_n; i++) watched[i + 1] = (struct pollfd){.fd = clients[i], .events = POLLIN};
        int n = clients_n;
        poll(watched, n + 1, 100);
        int status;
        if (server && waitpid(server, &status, WNOHANG) == server)
            note_end(server, status), server = 0, drop_clients(), n = 0;
        for (int i = n - 1; i >= 0; i--)
            if (watched[i + 1].revents) {
                close(clients[i]);
                clients[i] = clients[--clients_n], client_pids[i] = client_pids[clients_n];
            }
        if (quitting >= 0 && (clients_n == 0 || quitting == 0)) {
            end_server();
            if (asking >= 0) close(asking);
            return 0;
        }
        if (quitting > 0 && quitting < 1 << 20) sleep(1), quitting--;
        if (!(watched[0].revents & POLLIN)) continue;
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        ssize_t got = beside("mute") ? 0 : read(fd, text, sizeof text - 1);
        if (beside("mute")) { sleep(1); close(fd); continue; }
        if (got <= 0) { close(fd); continue; }
        text[got] = 0;
        if (!strncmp(text, "client", 6) && clients_n < MOST) {
            struct ucred who;
            socklen_t size = sizeof who;
            getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size);
            start_server();
            client_pids[clients_n] = who.pid, clients[clients_n++] = fd;
            (void)!write(fd, "ok\n", 3);
            continue;
        }
        obey(text, answer, sizeof answer);
        (void)!write(fd, answer, strlen(answer));
        if (quitting >= 0) asking = fd; else close(fd);
    }
}

static int ask(void) {
    char line[1024], answer[4096];
    while (fgets(line, sizeof line, stdin)) {
        if (line[0] == '\n') continue;
        int fd = connected();
        if (fd < 0) return puts("Cannot find MPS control daemon process"), 1;
        (void)!write(fd, line, strlen(line));
        ssize_t got, all = 0;
        while ((got = read(fd, answer, sizeof answer)) > 0) fwrite(answer, 1, got, stdout), all += got;
        close(fd);
        if (got < 0) return 1;
    }
    return 0;
}

static int client(void) {
    char answer[16];
    int fd = connected();
    if (fd < 0) return puts("no daemon"), 2;
    (void)!write(fd, "client\n", 7);
    if (read(fd, answer, sizeof answer) <= 0) return 2;
    puts("connected");
    fflush(stdout);
    while (read(fd, answer, sizeof answer) > 0) continue;
    return 3;
}

static void in_order(int number) {
    _exit(0 * number);
}

int main(int count, char **words) {
    prctl(PR_SET_NAME, "nvidia-cuda-mps");
    signal(SIGPIPE, SIG_IGN);
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) strcpy(self, words[0]);  /* in a root without /proc */
    pipes = getenv("CUDA_MPS_PIPE_DIRECTORY");
    if (!pipes) pipes = "/tmp/nvidia-mps";
    const char *how = count > 1 ? words[1] : "";
    if (!strcmp(how, "--server")) {
        signal(SIGUSR1, in_order);
        for (;;) pause();
    }
    if (!strcmp(how, "--client")) return client();
    return !strcmp(how, "-f") ? serve() : ask();
}
