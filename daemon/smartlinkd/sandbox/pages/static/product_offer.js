// The offer page of one product: it makes the call for its data itself, and shows what came.
"use strict";
(async () => {
  const root = document.getElementById("root");
  const say = (text) => { root.innerHTML = '<p class="error"></p>'; root.firstChild.textContent = text; };
  let answer;
  try {
    const response = await fetch(`/api/v3/offer/product?item_id=${document.body.dataset.item}`, {
      headers: { "affiliate-program-type": "1" },
    });
    answer = await response.json();
    if (window.leaveIfRefused(response.status, answer)) return;
  } catch (error) {
    say(`Không tải được: ${error.message}`);
    return;
  }
  if (!answer.data) {
    say("Không có dữ liệu cho sản phẩm này.");
    return;
  }
  const { batch_item_for_item_card_full: card, commission_rate: rate, commission } = answer.data;
  const shown = {
    "Cửa hàng": card.shop_name,
    "Giá": `₫${Math.round(Number(card.price) / 100000).toLocaleString("vi-VN")}`,
    "Đã bán": card.historical_sold ?? "–",
    "Đánh giá": card.item_rating?.rating_star ?? "–",
    "Tỷ lệ hoa hồng": rate.default_commission_rate,
    "Hoa hồng": commission,
  };
  root.replaceChildren(document.getElementById("offer").content.cloneNode(true));
  root.querySelector("h2").textContent = card.name;
  for (const [name, value] of Object.entries(shown)) {
    const term = document.createElement("dt");
    const text = document.createElement("dd");
    term.textContent = name;
    text.textContent = value;
    root.querySelector("dl").append(term, text);
  }
})();
