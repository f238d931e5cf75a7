/* The servers of the bench of the way out, and the least that a relay can be. Each runs until it is killed, a
 * process for each connection, and prints "ready" when it can be connected to. Arguments are those of the command
 * line (egress_load.c). */
#pragma once

int server_bytes(char **args);      /* PORT */
int server_http(char **args);       /* PORT LETTER */
int server_http_alone(char **args); /* PORT: one process for all, one connection after the other */
int server_https(
    char **args); /* PORT CERTIFICATE KEY TOKEN: 401 without "Bearer TOKEN"; "-": for all clients */
int server_relay(char **args); /* FD ADDRESS PORT */
int server_carry(
    char **args);            /* PORT ADDRESS PORT: one process for all, each gets a piece in turn */
int server_udp(char **args); /* PORT: sends back what comes */
