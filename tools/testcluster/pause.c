/* The first process of each pod: holds its namespaces, reaps what is left to it, ends when told. */
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int number) {
  (void)number;
  _exit(0);
}

static void reap(int number) {
  (void)number;
  while (waitpid(-1, NULL, WNOHANG) > 0) {
  }
}

int main(void) {
  struct sigaction ending = {.sa_handler = end};
  struct sigaction reaping = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};
  sigaction(SIGINT, &ending, NULL);
  sigaction(SIGTERM, &ending, NULL);
  sigaction(SIGCHLD, &reaping, NULL);
  for (;;) {
    pause();
  }
}
