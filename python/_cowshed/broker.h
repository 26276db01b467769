/* SPDX-License-Identifier: MIT */
/*
 * Broker: struct cow_broker
 */
#ifndef COWSHED_PYTHON_BROKER_H
#define COWSHED_PYTHON_BROKER_H

#include "python/_cowshed/base.h"

typedef struct {
	PyObject_HEAD struct cow_broker *broker;
} BrokerObject;

extern PyTypeObject *broker_type;

#endif
