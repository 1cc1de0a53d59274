"""Language models from transformers, width 256, vocabulary 8192."""

import torch

from workloads.base import Workload, model_loss, tokens

_VOCABULARY = 8192
_WIDTH = 256


def _gpt2(dropout):
    from transformers import GPT2Config, GPT2LMHeadModel

    rate = 0.1 if dropout else 0.0
    return GPT2LMHeadModel(GPT2Config(
        vocab_size=_VOCABULARY, n_positions=128, n_embd=_WIDTH, n_layer=4, n_head=4, resid_pdrop=rate, embd_pdrop=rate,
        attn_pdrop=rate, use_cache=False, bos_token_id=0, eos_token_id=0))


def _bert(dropout):
    from transformers import BertConfig, BertForSequenceClassification

    rate = 0.1 if dropout else 0.0
    return BertForSequenceClassification(BertConfig(
        vocab_size=_VOCABULARY, hidden_size=_WIDTH, num_hidden_layers=4, num_attention_heads=4,
        intermediate_size=4 * _WIDTH, max_position_embeddings=128, num_labels=3, hidden_dropout_prob=rate,
        attention_probs_dropout_prob=rate))


def _llama(dropout):
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(
        vocab_size=_VOCABULARY, hidden_size=_WIDTH, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=688, max_position_embeddings=128, use_cache=False))


def _t5(dropout):
    from transformers import T5Config, T5ForConditionalGeneration

    return T5ForConditionalGeneration(T5Config(
        vocab_size=_VOCABULARY, d_model=_WIDTH, d_kv=64, d_ff=1024, num_layers=2, num_decoder_layers=2, num_heads=4,
        dropout_rate=0.1 if dropout else 0.0, use_cache=False, decoder_start_token_id=0))


def _language_batch(rows, length):
    def make(generator):
        ids = tokens(generator, rows, length, _VOCABULARY)
        return {"input_ids": ids, "labels": ids.clone()}
    return make


def _bert_batch(generator):
    mask = torch.ones(8, 128, dtype=torch.long)
    mask[0, 100:] = 0   # one padded row, as in real batches
    return {"input_ids": tokens(generator, 8, 128, _VOCABULARY), "attention_mask": mask,
            "labels": torch.randint(0, 3, (8,), generator=generator)}


def _t5_batch(generator):
    return {"input_ids": tokens(generator, 4, 64, _VOCABULARY), "labels": tokens(generator, 4, 64, _VOCABULARY)}


GPT2 = Workload("gpt2", _gpt2, _language_batch(4, 128), model_loss, has_dropout=True)
BERT = Workload("bert", _bert, _bert_batch, model_loss, has_dropout=True)
LLAMA = Workload("llama", _llama, _language_batch(4, 128), model_loss)
T5 = Workload("t5", _t5, _t5_batch, model_loss, has_dropout=True)
